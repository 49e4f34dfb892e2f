# SPDX-License-Identifier: Apache-2.0
"""How a bench tells what it measured, and whether that meets the aim."""


def line(name, value, unit, at_most=None, at_least=None, void=None):
    """`void`: why it does not count. Not a number meets no aim."""
    text = f"bench: {name} {value:.4g} {unit}"
    sign, aim = ("<=", at_most) if at_least is None else (">=", at_least)
    if aim is None:
        return text
    met = value <= aim if sign == "<=" else value >= aim
    verdict = f"does not count: {void}" if void else "met" if met else "missed"
    return f"{text}, aim {sign} {aim:.4g}: {verdict}"


def tell(*figure, **aim):
    print(line(*figure, **aim), flush=True)
