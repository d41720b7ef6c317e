"""What can go wrong with a local cluster, in words that help to decide what to do next."""

UNREACHABLE = 3  # exit code: no cluster, or it does not answer
BAD_INPUT = 2  # exit code: the caller's profile, option or directory is wrong


class ClusterError(Exception):
    """A failure that ends the command: `message` says what failed, `hint` what would help."""

    def __init__(self, message: str, hint: str = "", exit_code: int = UNREACHABLE) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message
