"""What users do around runs: start, follow and recover them, import, export, register, clean up.

Private: nothing here is imported by task or adapter authors. No operation starts a process.
"""
