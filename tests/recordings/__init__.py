"""Recordings of what the product answers on generated clusters, to prove that a rearrangement changes no behaviour.

    python -m tests.recordings DIR
    python -m tests.recordings --compare DIR OTHER

Everything is built from raw API objects. `product` is the only module that imports the product. The objects have
builders of their own and not `tests.builders`: they must stay the same bytes while all other code is rearranged.
"""
