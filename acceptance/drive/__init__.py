"""What the acceptance suite drives weir with: processes, raw HTTP, metrics, /proc.

Nothing here knows what weir ought to do; that is in `claims` and in the tests.
"""
