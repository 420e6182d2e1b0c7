"""The claims of the progressive merge join at a small size: counts of pages and rows only, no times."""

import pytest
from benchmarks.papers.pmj_runs import RECTANGLES, clusters, nearer, rectangles, run, uniform

STRICTNESS = ("progressive", "semi_strict", "strict")


def test_pages_before_the_first_result_and_in_all() -> None:
    left, right = uniform(10_000, 10_000)
    courses = [run(left, right, "l.k = r.k", 0.1, 200, strictness=s) for s in STRICTNESS]
    pages = courses[0].pages
    assert [course.io / pages for course in courses] == pytest.approx([2, 2, 4], rel=0.02)
    assert courses[0].first_io == 0
    assert courses[0].first_rows <= 0.12 * 20_000
    assert [course.first_rows for course in courses[1:]] == [20_000, 20_000]
    loaded = 20  # a page of each run, before the sweep starts
    assert pages <= courses[1].first_io <= pages + loaded
    assert 3 * pages <= courses[2].first_io <= 3 * pages + loaded
    assert courses[0].early_share * courses[0].run_pairs == pytest.approx(1, abs=0.15)
    assert len({course.results for course in courses}) == 1


def test_rectangles_cost_as_much_as_a_semi_strict_join() -> None:
    left, right = rectangles((3000, 2500))
    pmj, semi = (run(left, right, RECTANGLES, 0.1, 34, strictness=s) for s in STRICTNESS[:2])
    assert pmj.io == semi.io
    assert pmj.results == semi.results
    assert pmj.counters.probes <= 20 * semi.counters.probes


@pytest.mark.slow
def test_clustered_points_give_more_before_the_merge() -> None:
    by_cluster, shuffled = (run(*clusters(800, 40, shuffled=s), nearer(0.05), 0.1, 400) for s in (False, True))
    assert by_cluster.early_share * by_cluster.run_pairs >= 3
    assert shuffled.early_share * shuffled.run_pairs == pytest.approx(1, abs=0.3)
    assert by_cluster.io == pytest.approx(shuffled.io, rel=0.02)


def test_answers_are_touched_little_more_than_once() -> None:
    left, right = uniform(8000, 800)
    course = run(left, right, "l.k = r.k", 0.1, 200)
    assert course.counters.pairs_tested <= 10 / 9 * course.results
    semi = run(left, right, "l.k = r.k", 0.1, 200, how="left_semi")
    assert semi.counters.pages_written < course.counters.pages_written


def test_nothing_is_found_twice_in_deep_merges() -> None:
    left, right = uniform(1500, 150)
    course = run(left, right, "l.k = r.k", 0.06, 100, distinct=True, fan_in=4)
    assert course.counters.merges >= 8
    assert course.results == course.distinct
