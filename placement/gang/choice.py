"""The search for what has to go: options that are enough together, none of which is spare, within all allowances.

1. Options are added in their order (`Option.order`) until the whole gang fits.
2. In reverse order, what is not needed is given back; many at a time, as long as that works. So none can be left
   out.
3. If that draws more than an allowance has left, some of what drew on it is left out, and the search begins again:
   without each of them in turn where few could go, so that every allowed set is thought of; else without as many as are
   too many, those first that help least. If that fails, the same once more with the largest pods first, and then as
   with few, as far as that goes.
4. Where a gang goes whole, the same search is made among its surplus alone: that may do now.

Example: one node with pods of 1, 1 and 2 CPUs, in this order, and a gang that needs 2. After all three were added, the
last is given back. If only one eviction is left, the first choice is too much; without its first pod the search finds
the large one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from placement.gang.candidate import Allowance, Candidate, Claimant, Option, WhyNot
from placement.model import Pod
from placement.plan.room import Joint

FEW = 8  # with so many options, every set of them is thought of
MOST_LOOKS = 10_000  # of thorough searches: options times attempts
MOST_EFFORT = 250_000  # of placements: 40 of 1,000 members on 5,000 nodes, which take some seconds
MOST_DIVES = 3  # attempts of a quick search


class EffortError(Exception):
    """A search was given up: it needs too many placements."""


class Trial(Protocol):
    """Where pods go and come back while a search is on: `placement.gang.clearing.Clearing`."""

    def clear(self, pods: Iterable[Pod]) -> None: ...
    def restore(self, pods: Iterable[Pod]) -> None: ...
    def fits(self) -> bool: ...
    def reach(self) -> frozenset[str] | None: ...
    @property
    def effort(self) -> int: ...
    def reset(self) -> None: ...
    def joint(self) -> Joint: ...
    def missing(self) -> int: ...
    def matters(self) -> frozenset[str] | None: ...


class Picking:
    """One search: which of the options to take."""

    def __init__(self, trial: Trial, found: Sequence[Option], claimant: Claimant) -> None:
        self._trial = trial
        self._options = found
        self._asked = max((pod.needs.requests for pod in claimant.pods), key=lambda each: each.get("cpu", 0))
        self._is_alike = len({id(pod.needs) for pod in claimant.pods}) == 1
        self._looks = 0
        self._helps: dict[Option, float] = {}
        self.excess: dict[Allowance, int] = {}  # what the first choice drew, of what it drew too much

    def best(self) -> list[Option] | None:
        """What to take; None: no allowed set was found. Raises `EffortError`."""
        chosen = self._affordable(self._options)
        if chosen is None:
            self._over(self._minimal(self._options) or ())
            return None
        return self._with_surplus_instead(chosen)

    def _affordable(self, found: Sequence[Option]) -> list[Option] | None:
        """Within all allowances."""
        if len(found) <= FEW:
            return self._thorough(found)
        likely = self._likely(found)
        chosen = self._quick(likely)
        if chosen is None and self._is_hopeless(found, self._trial.missing()):
            return None
        if chosen is None:
            chosen = self._quick(sorted(likely, key=lambda option: (-self._help(option), option.order)))
        return self._thorough(found) if chosen is None else chosen

    def _likely(self, found: Sequence[Option]) -> list[Option]:
        """Without surplus members that may not go anyway, since as many others of their gang help as much or more."""
        left: dict[Candidate, int] = {}
        unlikely: set[Option] = set()
        for option in sorted((option for option in found if not option.is_whole), key=self._help, reverse=True):
            of = option.candidate
            left[of] = left.get(of, len(of.running) - max(1, of.min_member)) - 1
            if left[of] < 0:
                unlikely.add(option)
        return [option for option in found if option not in unlikely]

    def _thorough(self, found: Sequence[Option]) -> list[Option] | None:
        """Tries without each of those that drew too much together: no allowed choice holds all of them."""
        tried: set[frozenset[Option]] = set()
        without = [frozenset[Option]()]
        for excluded in without:
            if excluded in tried:
                continue
            self._looks += len(found)
            if self._looks > MOST_LOOKS:
                return None
            tried.add(excluded)
            chosen = self._minimal([option for option in found if option not in excluded])
            if chosen is None:
                continue
            over = self._over(chosen)
            if not over:
                return chosen
            without += [excluded | {option} for option in reversed(chosen) if over[0] in option.draws]
        return None

    def _quick(self, found: Sequence[Option]) -> list[Option] | None:
        """Leaves out all that is too much at once, what helps least first."""
        left, missing = list(found), self._trial.missing()
        for _ in range(MOST_DIVES):
            chosen = self._minimal(left)
            if chosen is None:
                return None
            over = self._over(chosen)
            if not over:
                return chosen
            if self._is_hopeless(found, missing):
                return None
            excluded = frozenset(option for each in over for option in self._too_many(chosen, each))
            left = [option for option in left if option not in excluded]
        return None

    def _is_hopeless(self, found: Sequence[Option], missing: int) -> bool:
        """So many places are missing that the evictions left would not do, wherever.

        A pod of 3 CPUs that goes makes room for two members of 2 at most, where another CPU is free.
        """
        in_all = next(each.left for each in found[0].draws if (each.why, each.name) == (WhyNot.EVICTIONS, ""))
        asked = [(key, amount) for key, amount in self._asked.items() if amount]
        needs = {id(pod.needs): pod.needs.requests for option in found for pod in option.pods}.values()
        most = max((-(-each.get(key, 0) // amount) for each in needs for key, amount in asked), default=1)
        return self._is_alike and missing > in_all * max(1, most)

    def _too_many(self, chosen: Sequence[Option], each: Allowance) -> Iterator[Option]:
        """Those that help least."""
        drawing = sorted((option for option in reversed(chosen) if each in option.draws), key=self._help)
        drawn = sum(option.draws[each] for option in drawing)
        for option in drawing:
            if drawn <= each.left:
                return
            drawn -= option.draws[each]
            yield option

    def _over(self, chosen: Iterable[Option]) -> list[Allowance]:
        """The allowances of which they draw more than is left."""
        drawn: Counter[Allowance] = Counter()
        for option in chosen:
            drawn.update(option.draws)
        over = [each for each, count in drawn.items() if count > each.left]
        if not self.excess:
            self.excess = {each: drawn[each] for each in over}
        return over

    def _help(self, option: Option) -> float:
        """How much of a member one of the pods makes room for, in the resource that it has least of."""
        if option not in self._helps:
            asked = [(key, amount) for key, amount in self._asked.items() if amount]
            there = (pod.needs.requests for pod in option.pods)
            shares = [min((each.get(key, 0) / amount for key, amount in asked), default=1.0) for each in there]
            self._helps[option] = sum(shares) / len(shares)
        return self._helps[option]

    # --- the least that will do ---------------------------------------------------------------------------------------

    def _minimal(self, found: Sequence[Option]) -> list[Option] | None:
        """Enough of these, in their order, and none that is not needed; None: all are not enough."""
        taken = 0
        while not self._fits():
            if taken == len(found):
                self._put_back(found)
                return None
            more = found[taken : 2 * taken + 1]
            self._take(more)
            taken += len(more)
        return self._least(found[:taken])

    def _least(self, kept: Sequence[Option]) -> list[Option]:
        """Of what has been taken, without what is not needed. It is put back in the end.

        Once is enough where fewer pods on nodes never leave less room.
        """
        left = self._needed(kept)
        while len(left) < len(kept):
            kept, left = left, self._needed(left)
        self._put_back(left)
        return left

    def _needed(self, there: Sequence[Option]) -> list[Option]:
        """Without those that can be given back, the last first; more at a time for as long as that works."""
        needed: list[Option] = []
        end, size = len(there), 1
        while end:
            size = min(size, end)
            back = there[end - size : end]
            self._put_back(back)
            if self._fits():
                end, size = end - size, size * 2
                continue
            self._take(back)
            if size == 1:
                needed.append(back[0])
                end -= 1
            size = max(1, size // 2)
        return needed[::-1]

    def _fits(self) -> bool:
        if self._trial.effort > MOST_EFFORT:
            raise EffortError
        return self._trial.fits()

    def _take(self, found: Iterable[Option]) -> None:
        self._trial.clear(pod for option in found for pod in option.pods)

    def _put_back(self, found: Iterable[Option]) -> None:
        self._trial.restore(pod for option in found for pod in option.pods)

    def _with_surplus_instead(self, chosen: list[Option]) -> list[Option]:
        """No gang goes whole if some of its surplus will do: with it left out for other reasons, that may be so."""
        singly: dict[Candidate, list[Option]] = {}
        parts: dict[int, list[Option]] = {}
        for option in self._options:
            if not option.is_whole:
                singly.setdefault(option.candidate, []).append(option)
        replaced = {option.candidate for option in chosen if option.is_whole and option.candidate in singly}
        left = [option for option in chosen if option.is_whole or option.candidate not in replaced]
        self._take(left)
        for index, whole in enumerate(left):
            if whole.candidate in replaced:
                self._put_back([whole])
                instead = self._affordable(singly[whole.candidate])
                parts[index] = [whole] if instead is None else instead
                self._take(parts[index])
        return self._least([option for index, option in enumerate(left) for option in parts.get(index, [option])])
