"""One attempt, in the order data takes. Start at :mod:`perago.flow.lifecycle`.

Knows declarations, values and ports; never an adapter, a worker or a screen.
"""
