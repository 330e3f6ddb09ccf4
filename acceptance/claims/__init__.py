"""The claims of the project, each measured against real processes.

`show.py NAME` measures one at full size; the tests measure the same at a size that a test run affords.
"""
