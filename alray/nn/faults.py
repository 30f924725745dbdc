"""What code that is not alray's may raise: it is told with its place, not with a bare traceback."""

FAULTS_OF_USER_CODE: tuple[type[Exception], ...] = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    BufferError,
    ImportError,
    LookupError,
    MemoryError,
    NameError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)
"""Every family of the standard library's errors, save those that end a process."""
