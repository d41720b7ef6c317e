"""How the laws are tried: enough examples to matter, few enough for every change. CI tries the same ones each time."""

from fractions import Fraction

from hypothesis import strategies as st

from placement.slots import Slots
from tests.examples import examples

few = examples(40)
many = examples(150)

ratios = st.one_of(
    st.fractions(min_value=0, max_value=1, max_denominator=1000),
    st.integers(0, 100).map(lambda percent: Fraction(percent, 100)),
    st.sampled_from([Fraction(0), Fraction(1), Fraction(7, 10), Fraction(1, 10**9)]),
)
any_slots = st.builds(Slots, ratios, st.integers(0, 12))
