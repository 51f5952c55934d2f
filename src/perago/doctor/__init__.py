"""What ``perago doctor`` looks at: a module for each system. It may know adapters."""
