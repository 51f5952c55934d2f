"""What users write: tasks, workspaces, guardrails, controls, pipelines. Imports only the model."""
