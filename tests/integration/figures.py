"""What a run has measured. It is printed at the end, because programs fill the output of the tests with their logs."""

FIGURES: list[str] = []


def note(line: str) -> None:
    FIGURES.append(line)
    print(f"\n{line}")
