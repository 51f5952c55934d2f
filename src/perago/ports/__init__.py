"""What the flow needs from the world: protocols whose docstrings are the contract.

Ports know values and errors only. Adapters implement them; the flow calls them.
"""
