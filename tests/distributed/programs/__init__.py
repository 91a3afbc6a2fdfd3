"""What the ranks of a test run. Each function asserts on every rank, on a group of any size."""

from __future__ import annotations

import traceback
from collections.abc import Callable

from tests.distributed.programs import averaging, collectives, deadlocks, sharing

CHECKS: dict[str, Callable[[], None]] = {
    check.__name__: check
    for check in (
        collectives.collectives,
        collectives.sends_and_receives,
        collectives.a_copy_is_refused,
        collectives.what_gloo_cannot_compute_is_refused,
        collectives.ranks_that_disagree_are_told_of_each_other,
        collectives.an_overwritten_value_is_noticed,
        averaging.ranks_train_as_one_process,
        averaging.buckets_leave_while_the_backward_runs,
        averaging.accumulation_without_messages,
        averaging.parameters_that_were_not_trained_are_refused,
        averaging.parameters_that_some_ranks_do_not_use,
        averaging.gradients_are_views_that_no_later_backward_writes,
        averaging.what_a_failed_backward_has_sent_is_not_mixed_with_the_next,
        averaging.batches_of_different_sizes,
        averaging.models_that_differ_are_refused,
        averaging.a_trace_is_refused,
        averaging.grad_takes_no_part,
        deadlocks.a_backward_and_another_call,
        deadlocks.a_backward_more_than_the_others,
        deadlocks.two_models,
        deadlocks.a_part_of_a_backward,
        deadlocks.a_handle_that_one_rank_has_removed,
        deadlocks.a_slow_rank_is_waited_for,
        sharing.synchronized_batch_norm,
        sharing.sharded_optimizer,
        sharing.shares_are_of_one_group_of_parameters,
        sharing.a_batch_norm_with_two_names_stays_one,
        sharing.a_batch_norm_needs_two_values_on_all_ranks_together,
        sharing.a_checkpoint_that_is_not_written_is_an_error_of_all_ranks,
        sharing.a_row_takes_as_long_as_its_slowest_rank,
        sharing.ring,
        sharing.tensor_parallel,
        sharing.pipeline,
        sharing.micro_batches_of_a_pipeline_have_one_shape,
        sharing.gradients_of_a_pipeline_have_the_dtype_of_its_outputs,
    )
}


def all_checks() -> dict[str, str]:
    """The traceback of each check that failed; empty for the others."""
    found = {}
    for name, check in CHECKS.items():
        try:
            check()
            found[name] = ""
        except Exception:
            found[name] = traceback.format_exc()
    return found
