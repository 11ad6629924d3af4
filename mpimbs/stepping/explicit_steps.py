"""The room of explicit Runge-Kutta steps: a state, the one that a step makes of it, rates, and what was chosen."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import typeof

from mpimbs.kernels.memory import Table
from mpimbs.parallel.native import Channel
from mpimbs.stepping import march as m
from mpimbs.stepping.schemes import RENAMED, Accuracy

Floats = npt.NDArray[np.float64]


class Tableau(NamedTuple):
    """A scheme. Row s of its rates, of s stages, is the derivative where the step ends; rows behind are interpolants'.

    Attributes
    ----------
    order : int
        Of its steps; their error is that of order + 1.
    stages : int
        s: evaluations that a step asks for.
    a : array [rows, rows]
        Weights of the rates before in the state of each; row s has those of the step.
    c : array [rows]
        Times of the stages, in steps.
    errors : array [0 to 2, s + 1]
        Weights of the rates in estimates of the error.
    dense : array [rows, degree]
        Weights of the rates within the step at x of it: sum dense[:, k] x^(k + 1).
    keeps_last : bool
        Whether row s takes part in the error, so that it is there when the next step begins: it is its first stage.
    """

    order: int
    stages: int
    a: Floats
    c: Floats
    errors: Floats
    dense: Floats
    keeps_last: bool

    def weights(self, x: float) -> Floats:
        """Weights of the rates [rows] in the state at a place from 0 to 1 of a step, less that where it begins."""
        powers = np.cumprod(np.full(self.dense.shape[1], x))
        found: Floats = self.dense @ powers
        return found

    @property
    def polynomial(self) -> Floats:
        """Coefficients of R(z), by which a step of size h takes y' = a y, with z = a h; lowest first."""
        s = self.stages
        found, column = [1.0], np.ones(s)
        for _ in range(s):
            found.append(float(self.a[s, :s] @ column))
            column = self.a[:s, :s] @ column
        return np.array(found)


def _rows(given: Sequence[Mapping[int, float] | Sequence[float]], width: int) -> Floats:
    found = np.zeros((len(given), width))
    for row, values in zip(found, given, strict=True):
        for k, value in values.items() if isinstance(values, Mapping) else enumerate(values):
            row[k] = value
    return found


def _hermite(b: Floats) -> Floats:
    """The cubic through both ends of a step with their rates, as `dense`: rates of stages, and of the end, last."""
    found = np.outer(np.append(b, 0.0), (0.0, 3.0, -2.0))
    found[0] += 1.0, -2.0, 1.0
    found[-1] += 0.0, -1.0, 1.0
    return found


def _tableau(
    order: int,
    stages: int,
    a: Sequence[Mapping[int, float] | Sequence[float]],
    errors: Sequence[Mapping[int, float] | Sequence[float]] = (),
    dense: Floats | None = None,
    keeps_last: bool = False,
) -> Tableau:
    weights = _rows(((), *a), len(a) + 1)
    if dense is None:
        dense = _hermite(weights[stages, :stages])
    c = weights.sum(axis=1)
    return Tableau(order, stages, weights, c.round(15), _rows(errors, stages + 1), dense, keeps_last)


def _between(given: Sequence[Mapping[int, float]], b: Floats, rows: int) -> Floats:
    """Hairer's polynomial of degree 7: x, x (1 - x), x^2 (1 - x), x^2 (1 - x)^2, ... times differences of the ends."""
    s = len(b)
    end, first, last = np.zeros((3, rows))
    end[:s], first[0], last[s] = b, 1.0, 1.0
    factors = [end, first - end, 2.0 * end - first - last, *_rows(given, rows)]
    found, polynomial = np.zeros((rows, len(factors))), np.polynomial.Polynomial([1.0])
    for k, factor in enumerate(factors):
        polynomial = polynomial * np.polynomial.Polynomial([1.0, -1.0] if k % 2 else [0.0, 1.0])
        coefficients = polynomial.coef[1:]
        found[:, : len(coefficients)] += np.outer(factor, coefficients)
    return found


_SHAMPINE = (
    (1, -8048581381 / 2820520608, 8663915743 / 2820520608, -12715105075 / 11282082432),
    (),
    (0, 131558114200 / 32700410799, -68118460800 / 10900136933, 87487479700 / 32700410799),
    (0, -1754552775 / 470086768, 14199869525 / 1410260304, -10690763975 / 1880347072),
    (0, 127303824393 / 49829197408, -318862633887 / 49829197408, 701980252875 / 199316789632),
    (0, -282668133 / 205662961, 2019193451 / 616988883, -1453857185 / 822651844),
    (0, 40617522 / 29380423, -110615467 / 29380423, 69997945 / 29380423),
)
_DORMAND_PRINCE_8: tuple[dict[int, float], ...] = (
    {0: 0.05260015195876773},
    {0: 0.0197250569845379, 1: 0.0591751709536137},
    {0: 0.02958758547680685, 2: 0.08876275643042054},
    {0: 0.2413651341592667, 2: -0.8845494793282861, 3: 0.924834003261792},
    {0: 0.037037037037037035, 3: 0.17082860872947386, 4: 0.12546768756682242},
    {0: 0.037109375, 3: 0.17025221101954405, 4: 0.06021653898045596, 5: -0.017578125},
    {0: 0.03709200011850479, 3: 0.17038392571223998, 4: 0.10726203044637328, 5: -0.015319437748624402, 6:
     0.008273789163814023},
    {0: 0.6241109587160757, 3: -3.3608926294469414, 4: -0.868219346841726, 5: 27.59209969944671, 6:
     20.154067550477894, 7: -43.48988418106996},
    {0: 0.47766253643826434, 3: -2.4881146199716677, 4: -0.590290826836843, 5: 21.230051448181193, 6:
     15.279233632882423, 7: -33.28821096898486, 8: -0.020331201708508627},
    {0: -0.9371424300859873, 3: 5.186372428844064, 4: 1.0914373489967295, 5: -8.149787010746927, 6:
     -18.52006565999696, 7: 22.739487099350505, 8: 2.4936055526796523, 9: -3.0467644718982196},
    {0: 2.273310147516538, 3: -10.53449546673725, 4: -2.0008720582248625, 5: -17.9589318631188, 6:
     27.94888452941996, 7: -2.8589982771350235, 8: -8.87285693353063, 9: 12.360567175794303, 10:
     0.6433927460157636},
    {0: 0.054293734116568765, 5: 4.450312892752409, 6: 1.8915178993145003, 7: -5.801203960010585, 8:
     0.3111643669578199, 9: -0.1521609496625161, 10: 0.20136540080403034, 11: 0.04471061572777259},
    {0: 0.056167502283047954, 6: 0.25350021021662483, 7: -0.2462390374708025, 8: -0.12419142326381637, 9:
     0.15329179827876568, 10: 0.00820105229563469, 11: 0.007567897660545699, 12: -0.008298},
    {0: 0.03183464816350214, 5: 0.028300909672366776, 6: 0.053541988307438566, 7: -0.05492374857139099, 10:
     -0.00010834732869724932, 11: 0.0003825710908356584, 12: -0.00034046500868740456, 13: 0.1413124436746325},
    {0: -0.42889630158379194, 5: -4.697621415361164, 6: 7.683421196062599, 7: 4.06898981839711, 8:
     0.3567271874552811, 12: -0.0013990241651590145, 13: 2.9475147891527724, 14: -9.15095847217987},
)  # fmt: skip
_ERRORS_8: tuple[dict[int, float], ...] = (  # of order 5, of order 3
    {0: 0.01312004499419488, 5: -1.2251564463762044, 6: -0.4957589496572502, 7: 1.6643771824549864, 8:
     -0.35032884874997366, 9: 0.3341791187130175, 10: 0.08192320648511571, 11: -0.022355307863886294},
    {0: -0.18980075407240762, 5: 4.450312892752409, 6: 1.8915178993145003, 7: -5.801203960010585, 8:
     -0.4226823213237919, 9: -0.1521609496625161, 10: 0.20136540080403034, 11: 0.02265179219836082},
)  # fmt: skip
_HAIRER: tuple[dict[int, float], ...] = (
    {0: -8.428938276109013, 5: 0.5667149535193777, 6: -3.0689499459498917, 7: 2.38466765651207, 8:
     2.117034582445028, 9: -0.871391583777973, 10: 2.2404374302607883, 11: 0.6315787787694688, 12:
     -0.08899033645133331, 13: 18.148505520854727, 14: -9.194632392478356, 15: -4.436036387594894},
    {0: 10.427508642579134, 5: 242.28349177525817, 6: 165.20045171727028, 7: -374.5467547226902, 8:
     -22.113666853125306, 9: 7.733432668472264, 10: -30.674084731089398, 11: -9.332130526430229, 12:
     15.697238121770845, 13: -31.139403219565178, 14: -9.35292435884448, 15: 35.81684148639408},
    {0: 19.985053242002433, 5: -387.0373087493518, 6: -189.17813819516758, 7: 527.8081592054236, 8:
     -11.57390253995963, 9: 6.8812326946963, 10: -1.0006050966910838, 11: 0.7777137798053443, 12:
     -2.778205752353508, 13: -60.19669523126412, 14: 84.32040550667716, 15: 11.99229113618279},
    {0: -25.69393346270375, 5: -154.18974869023643, 6: -231.5293791760455, 7: 357.6391179106141, 8:
     93.40532418362432, 9: -37.45832313645163, 10: 104.0996495089623, 11: 29.8402934266605, 12: -43.53345659001114,
     13: 96.32455395918828, 14: -39.17726167561544, 15: -149.72683625798564},
)  # fmt: skip

TABLEAUX = {
    "rk4": _tableau(4, 4, ((1 / 2,), (0, 1 / 2), (0, 0, 1), (1 / 6, 1 / 3, 1 / 3, 1 / 6))),
    "bs3": _tableau(
        3, 3, ((1 / 2,), (0, 3 / 4), (2 / 9, 1 / 3, 4 / 9)), [(5 / 72, -1 / 12, -1 / 9, 1 / 8)], keeps_last=True
    ),
    "dopri5": _tableau(
        5,
        6,
        (
            (1 / 5,),
            (3 / 40, 9 / 40),
            (44 / 45, -56 / 15, 32 / 9),
            (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
            (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
            (35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
        ),
        [(-71 / 57600, 0, 71 / 16695, -71 / 1920, 17253 / 339200, -22 / 525, 1 / 40)],
        _rows(_SHAMPINE, 4),
        keeps_last=True,
    ),
    "dop853": _tableau(
        8, 12, _DORMAND_PRINCE_8, _ERRORS_8, _between(_HAIRER, _rows(_DORMAND_PRINCE_8[11:12], 12)[0], 16)
    ),
}


Parts = tuple[Floats, Floats, Floats]  # all numbers of a state, or of its rates; of coordinates; of speeds
LEAST_FACTOR = 0.1  # how much shorter a step becomes at the most
NOBODY = Channel(np.zeros(3, np.int64), np.zeros(16, np.int64), np.zeros(1))


@functools.cache  # a second time in a process there is nothing to do
def compile_steps() -> None:
    """Compile, or load from the cache, what steps call; no communication."""
    steps = ExplicitSteps("dopri5", Accuracy(), np.zeros(2), 1, 1, np.zeros(0, np.int64))
    for entry in (m.propose, m.judge, m.conclude, m.march):
        entry.compile((typeof(steps.plan),))
    m.stage.compile((typeof(steps.plan), typeof(0)))
    m.interpolated_state.compile((typeof(steps.plan), typeof(steps.numbers), typeof(0.0)))


class ExplicitSteps:
    """Takes steps stage by stage, of one system or of copies; see `march` for what is computed.

    Parameters
    ----------
    name : str
        A name in `TABLEAUX`.
    accuracy : Accuracy
    state : array [n]
        Where it begins: coordinates, speeds, and at most one number that has no part in errors.
    nq, nu : int
    quaternions : array of int
        Where they begin.
    **compiled
        Fields of `march.MarchPlan`, where compiled code takes the steps.

    Attributes
    ----------
    tableau : Tableau
    numbers, counts : array
        As `march` names their items.
    told, heard : array [march.FACTS]
    plan : array of int
        What compiled code is given.
    rows : list of Parts
        Rates.
    """

    def __init__(
        self,
        name: str,
        accuracy: Accuracy,
        state: Floats,
        nq: int,
        nu: int,
        quaternions: npt.NDArray[np.int64],
        **compiled: Any,
    ) -> None:
        self.tableau = tableau = TABLEAUX[RENAMED.get(name, name)]
        n, rows = len(state), len(tableau.a)
        stride = -(-n // m.WIDTH) * m.WIDTH
        states, rates, stage = np.zeros((2, stride)), np.zeros((rows, stride)), np.zeros(stride)
        states[0, :n] = state
        self._rooms = [(room[:n], room[:nq], room[nq : nq + nu]) for room in (*states, stage)]
        self.rows = [(row[:n], row[:nq], row[nq : nq + nu]) for row in rates]
        self._all_rates = rates[:, : nq + nu]
        self.numbers, self.counts = np.zeros(m.NUMBERS), np.zeros(m.ALL_COUNTS, np.int64)
        self._sizes, self.told, self.heard = np.zeros(m.LONGEST), np.zeros(m.FACTS), np.zeros(m.FACTS)
        none = np.zeros(0)
        given: dict[str, Any] = {
            "rank": np.zeros(0, np.int64), "evaluation": 0, "channel": NOBODY, "alone": 1,
            "held": none, "torque": none, "damping": none,
        } | compiled  # fmt: skip
        fixed = accuracy.dt is not None
        plan = m.MarchPlan(
            nq=nq, nu=nu, n=n, stride=stride, stages=tableau.stages, rows=rows, keeps_last=int(tableau.keeps_last),
            fixed=int(fixed), a=np.ascontiguousarray(tableau.a).ravel(), errors=tableau.errors.ravel(),
            states=states.ravel(), rates=rates.ravel(), state=stage, room=np.zeros(3 * m.AT_ONCE),
            quaternions=np.ascontiguousarray(quaternions, np.int64), numbers=self.numbers, counts=self.counts,
            sizes=self._sizes, told=self.told, heard=self.heard, **given,
        )  # fmt: skip
        self._table = Table(plan)
        self.plan = self._table.data
        s, c = self.numbers, self.counts
        s[m.RELATIVE], s[m.ABSOLUTE] = accuracy.rtol, accuracy.atol
        s[m.ORDER], s[m.LEAST_FACTOR] = tableau.order, LEAST_FACTOR
        c[m.LAST] = tableau.stages

    def begin(self, t: float) -> None:
        """Be at a time (s), with the state as it is."""
        self.numbers[[m.REACHED, m.BEGAN]] = t

    def know(self, rates: Floats) -> None:
        """Take the rates of the state as it is."""
        self.rows[self.counts[m.FIRST]][0][:] = rates
        self.counts[m.KNOWN] = m.IN_FIRST

    def forget(self) -> None:
        """Take nothing from the step before."""
        self.counts[[m.KNOWN, m.AGAIN]] = 0

    def undo(self) -> None:
        """Go back to where the last step began."""
        s, c = self.numbers, self.counts
        s[m.REACHED] = s[m.BEGAN]
        c[m.NOW], c[m.KNOWN] = 1 - c[m.NOW], m.IN_FIRST

    @property
    def known_rates(self) -> Floats | None:
        """Those of the state as it is, where they are known; they may be written."""
        c = self.counts
        if c[m.KNOWN] == m.NOTHING_KNOWN:
            return None
        return self.rows[c[m.FIRST] if c[m.KNOWN] == m.IN_FIRST else c[m.LAST]][0]

    @property
    def time(self) -> float:
        """Time reached (s)."""
        return float(self.numbers[m.REACHED])

    @property
    def began(self) -> float:
        """When the last step began (s)."""
        return float(self.numbers[m.BEGAN])

    @property
    def size(self) -> float:
        """Size of the last attempt of a step (s)."""
        return float(self.numbers[m.TRIED])

    @property
    def step(self) -> float:
        """Size of the next step (s), if the time ahead does not shorten it; may be set."""
        return float(self.numbers[m.STEP])

    @step.setter
    def step(self, size: float) -> None:
        self.numbers[m.STEP] = size

    @property
    def state(self) -> Parts:
        """The state at the time reached; may be written."""
        return self._rooms[self.counts[m.NOW]]

    @property
    def other(self) -> Parts:
        """The state where the last step began; of one that is tried, where it ends."""
        return self._rooms[1 - self.counts[m.NOW]]

    @property
    def sizes(self) -> list[float]:
        """Sizes of the steps that were taken in the last call (s), negative where the time ahead has shortened them."""
        return self._sizes[: self.counts[m.ACCEPTED]].tolist()

    def attempt(self, target: float, evaluate: Callable[[float, Parts, int], None]) -> None:
        """Try a step, not beyond a time (s); `evaluate` writes the rates of a state at a time to a row."""
        s, c, tableau = self.numbers, self.counts, self.tableau
        s[m.TARGET] = target
        m.propose(self.plan)
        began, size = self.time, self.size
        if c[m.KNOWN] == m.NOTHING_KNOWN:
            evaluate(began, self.state, int(c[m.FIRST]))
            c[m.KNOWN] = m.IN_FIRST
        for k in range(1, tableau.stages):
            m.stage(self.plan, k)
            evaluate(began + float(tableau.c[k]) * size, self._rooms[2], k)
        m.stage(self.plan, tableau.stages)
        if tableau.keeps_last:
            evaluate(began + size, self.other, int(c[m.LAST]))

    def errors(self) -> Floats:
        """Estimates of the errors of the step that is tried, over the tolerance [n]; as `march` finds the largest."""
        tableau, c, s = self.tableau, self.counts, self.numbers
        chosen = [c[m.FIRST], *range(1, tableau.stages), c[m.LAST]][: tableau.stages + tableau.keeps_last]
        found = self.size * (tableau.errors[:, : len(chosen)] @ self._all_rates[chosen])
        estimate = found[0]
        if len(found) > 1:
            estimate = estimate**2 / np.maximum(np.sqrt(estimate**2 + 0.01 * found[1] ** 2), 1e-300)
        values = self.other[0][: len(estimate)]
        largest: Floats = np.abs(estimate) / (s[m.ABSOLUTE] + s[m.RELATIVE] * np.abs(values))
        return np.where(np.isfinite(values), largest, np.nan)

    def conclude(self, error: float) -> tuple[int, bool]:
        """Take the step that is tried, or reject it, by its error; gives the outcome, and whether it is taken."""
        failed = not np.isfinite(error)
        self.heard[:2] = 0.0 if failed else error, failed
        m.conclude(self.plan)
        return int(self.counts[m.OUTCOME]), bool(self.counts[m.ACCEPTED])

    def within(self, t: float) -> Parts:
        """Give the state at a time (s) in the last step, by the scheme's polynomial; it is used again."""
        size = self.size
        m.interpolated_state(self.plan, self.tableau.weights((t - self.began) / size), size)
        return self._rooms[2]

    def complete(self, evaluate: Callable[[float, Parts, int], None]) -> None:
        """Evaluate what the polynomial of the last step takes beyond the rates of its stages."""
        c, tableau = self.counts, self.tableau
        if c[m.KNOWN] == m.NOTHING_KNOWN:  # which the next step begins with
            evaluate(self.time, self.state, int(c[m.LAST]))
            c[m.KNOWN] = m.IN_LAST
        for k in range(tableau.stages + 1, len(tableau.a)):
            m.interpolated_state(self.plan, tableau.a[k].copy(), self.size)
            evaluate(self.began + float(tableau.c[k]) * self.size, self._rooms[2], k)
