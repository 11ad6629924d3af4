"""The schemes of steps as tables of numbers: explicit Runge-Kutta and linearly implicit Rosenbrock-W methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from mpimbs.base.arrays import Floats


class Tableau(NamedTuple):
    """A scheme. Row s of its rates, of s stages, is the derivative where the step ends; rows behind are interpolants'.

    Of a Rosenbrock-W method row 0 is the derivative f where the step begins, and row k behind it an increment U: the
    solution of (1 - gamma h J) U = gamma (f + sum solves[k, j] U_j), with f in the state of the stage, whose place in
    the sum is k; of the first one 0 [Hairer, Wanner, section IV.7, in the variables of (7.25)]. Its order is the same
    for any J.
    """

    order: int  # of its steps; their error is that of order + 1
    stages: int  # s: evaluations that a step asks for
    a: Floats  # [rows, rows]: weights of the rates before in the state of each; row s has those of the step
    c: Floats  # [rows]: times of the stages, in steps
    errors: Floats  # [0 to 2, s + 1]: weights of the rates in estimates of the error
    dense: Floats  # [rows, degree]: weights of the rates within the step at x of it: sum dense[:, k] x^(k + 1)
    # whether row s takes part in the error, so that it is there when the next step begins: it is its first stage
    keeps_last: bool
    gamma: float = 0.0  # of a Rosenbrock-W method; else 0
    # [rows, rows]: of a Rosenbrock-W method, weights of rows in the right sides of its stages
    solves: Floats = np.zeros((0, 0))

    @property
    def between_takes_more(self) -> bool:
        """Whether states within a step take evaluations beyond those of its stages."""
        return not self.keeps_last and bool(self.dense[self.stages :].any())

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


def _rosenbrock(
    order: int,
    gamma: float,
    alphas: Sequence[Sequence[float]],
    gammas: Sequence[Sequence[float]],
    embedded: Sequence[float],
    weights: Sequence[float] = (),
) -> Tableau:
    """A Rosenbrock-W method by its textbook's coefficients; stiffly accurate where no weights are given.

    Stages beyond those of the embedded weights are for states within a step. Of these the weights are p x + ... +
    (b - p - ...) x^k, k the order less one, or 2; p, ... of the least norm that keeps their order for any J: of every
    tree of f and J [Hairer, Wanner, section IV.7] the sum is x^n / density, or 0 where J takes part. All are of
    increments, which hold no stiff rates.
    """
    s, n = len(embedded), len(alphas) + 1
    alpha, below = _rows(((), *alphas), n), _rows(((), *gammas), n)
    whole, one = below + gamma * np.eye(n), np.ones(n)
    b = np.zeros(n)
    b[:s] = weights or alpha[s - 1, :s] + whole[s - 1, :s]
    c, g = alpha @ one, whole @ one
    trees = np.array([one, c, g, c**2, alpha @ c, alpha @ g, whole @ c, whole @ g])[: (1, 3, 8)[order - 2]]
    back, exact = np.tril(np.linalg.inv(whole)), np.linalg.pinv(trees)
    within = [exact[:, 0], *([0.5 * exact[:, 1]] if order > 3 else [])]
    at = np.array([*range(1, s + 1), *range(s + 2, n + 2)])  # row s + 1 is the end of the step
    a, errors, dense = np.zeros((n + 2, n + 2)), np.zeros((1, s + 2)), np.zeros((n + 2, len(within) + 1))
    solves, times = np.zeros((n + 2, n + 2)), np.ones(n + 2)
    a[np.ix_(at, at)], a[s + 1, at] = alpha @ back, b @ back
    errors[0, 1:-1] = (b[:s] - np.array(embedded)) @ back[:s, :s]
    dense[at] = (np.array([*within, b - sum(within)]) @ back).T
    solves[np.ix_(at, at)] = np.eye(n) - np.tril(back, -1)
    solves[1, :2] = 1.0, 0.0  # where the step begins, as in row 0
    times[0], times[at] = 0.0, c
    return Tableau(order, s + 1, a, times.round(15), errors, dense, False, gamma, solves)


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

# Of order 4 for any J: the conditions of the 21 trees up to that were solved, and those of the 8 up to order 3 by the
# embedded weights, for least errors of order 5; the last three stages are for states within steps.
_ALPHAS_4 = (
    (0.4796288853302925,),
    (0.3292710015419262, -0.22185184031026825),
    (0.2968748371320339, 0.6293606937692026, -0.3344409522138815),
    (0.42569118093227765, -0.1881082420530739, 0.19537570445730967, 0.4671423526937812),
    (0.07484791182041696, -0.2601289889067399, 0.3851678695512983, 0.8792499308747128, -0.0791367233396883),
    (0.11201764055782662, 0.07689680462887295, 0.03968908828135169, 0.17248510578195367, 0.009235330933385834,
     0.021926362500175437),
    (0.2989026398739989, 0.04596309960178357, 0.10290215122724777, 0.2077676497048505, -0.18394986151005255,
     -0.17186143126967615, 0.1882273328789061),
    (0.013343757509247099, -0.055606462121319054, 0.049217407095238294, -0.1598130911479874, 0.023282493902930367,
     0.025918338017221158, -0.02884058660995895, 0.1301143179510561),
)  # fmt: skip
_GAMMAS_4 = (
    (-0.8220562781506183,),
    (-1.0597900504017446, 0.3273593233475956),
    (-0.017410578484845913, -0.6992763813301245, 0.5267040230040535),
    (-0.733942625806554, -0.16990259513737785, 0.25222152648680707, -0.0069797628212258005),
    (0.1360576845940666, 0.6754326224874233, -0.44794661560155546, -0.5050302275454223, -0.15851346393451227),
    (0.06890076297799892, 0.1668427254095698, 0.19658484949118946, -0.10678936741903816, -0.006326757290137921,
     -0.17393761453227033),
    (0.13567171977372874, 0.04364981655123813, -0.05254925209386149, 0.04659488989705942, 0.08675843856354261,
     0.08757507917947652, -0.24045288381861535),
    (-0.1153899169623874, 0.010853022050023033, 0.08964481563044148, -0.008386756722303795, -0.023791506563491074,
     -0.03290734269952849, 0.25065763791332024, 0.021076515253323477),
)  # fmt: skip
_EMBEDDED_4 = (
    0.22163566851007446, 0.0967593714388684, -0.0028676604556760917, 0.5144696034390516, 0.2058467677637724,
    -0.03584375069609056,
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
    # ROS2 [Verwer, Spee, Blom, Hundsdorfer 1999], L-stable.
    "rosenbrock2": _rosenbrock(2, 1.0 - np.sqrt(0.5), ((1.0,),), ((-2.0 + np.sqrt(2.0),),), (1.0, 0.0), (0.5, 0.5)),
    # ROS34PW2 [Rang, Angermann 2005], L-stable and stiffly accurate.
    "rosenbrock": _rosenbrock(
        3,
        0.43586652150845900,
        ((0.87173304301691801,), (0.84457060015369423, -0.11299064236484185), (0.0, 0.0, 1.0)),
        (
            (-0.87173304301691801,),
            (-0.90338057013044082, 0.054180672388095326),
            (0.24212380706095346, -1.2232505839045147, 0.54526025533510214),
        ),
        (0.37810903145819369, -0.096042292212423178, 0.5, 0.21793326075422950),
    ),
    # Ours, L-stable and stiffly accurate.
    "rosenbrock4": _rosenbrock(4, 0.3, _ALPHAS_4, _GAMMAS_4, _EMBEDDED_4),
}
