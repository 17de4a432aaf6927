/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a save flows: one slow write holds up nothing but its slot, whatever the tensors'
 * sizes; a fence and a wait end when they should; several saves may be outstanding. On
 * the fault method, where writes can be held.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "ckpt/saver.h"
#include "fault_util.h"

#define SLOTS 4u
#define IN_FLIGHT ((SLOTS + 1) / 2)
#define SLOT_BYTES 65536u
#define N_TENSORS 40u
#define TENSOR_BYTES 30011u /* no multiple of anything */
#define HEADER_BYTES 8192u  /* at most */
#define WAIT_NS (UINT64_C(20) * STI_NS_PER_S)

static struct sti_pool *pool;
static char bytes[N_TENSORS][TENSOR_BYTES];

struct flow {
    struct fault_disk disk;
    struct sti_root root;
    struct sti_saver *saver;
};

static void
start(struct flow *flow, uint32_t outstanding)
{
    *flow = (struct flow){.root = {.dir_fd = -1, .path = sti_mem_strdup(".")}};
    fault_start(&flow->disk);
    struct sti_root_open how = {.aio = flow->disk.aio, .session = 1, .is_buffered = true};
    assert_int_equal(sti_root_open(&flow->root, "/run", &how, NULL), 0);
    struct sti_saver_opts opts = {.aio = flow->disk.aio,
                                  .pool = pool,
                                  .roots = &flow->root,
                                  .n_roots = 1,
                                  .slots = SLOTS,
                                  .slot_bytes = SLOT_BYTES,
                                  .chunk_bytes = 4096,
                                  .outstanding = outstanding,
                                  .world = 1,
                                  .session = 7};
    assert_int_equal(sti_saver_new(&flow->saver, &opts, NULL), 0);
}

static void
stop(struct flow *flow)
{
    struct sti_aio_op op = {.kind = STI_AIO_CLOSE, .fd = flow->root.dir_fd};

    sti_saver_free(flow->saver);
    assert_int_equal(sti_aio_run(flow->disk.aio, &op), 0);
    sti_mem_free(flow->root.path);
    fault_stop(&flow->disk);
}

static int
save(struct flow *flow, uint64_t step, stk_error *err)
{
    const uint64_t shape = TENSOR_BYTES;
    char names[N_TENSORS][16];
    struct sti_layout_input inputs[N_TENSORS];
    struct sti_saver_tensor tensors[N_TENSORS];

    for (uint32_t at = 0; at < N_TENSORS; at++) {
        (void)snprintf(names[at], sizeof(names[at]), "t%02u", at);
        inputs[at] = (struct sti_layout_input){.name = names[at],
                                               .dtype = "U8",
                                               .shape = &shape,
                                               .dims = 1,
                                               .owner = STI_LAYOUT_SHARED};
        tensors[at] = (struct sti_saver_tensor){.data = bytes[at], .is_stable = true};
    }
    const struct sti_saver_request request = {
        .step = step, .inputs = inputs, .tensors = tensors, .n_tensors = N_TENSORS};
    return sti_saver_save(flow->saver, &request, err);
}

static void
hold_writes(struct flow *flow, uint32_t n_skip, uint32_t n_times)
{
    struct sti_fault_rule rule = {.op_idx = STI_FAULT_ANY,
                                  .kinds = BIT(STI_AIO_WRITE),
                                  .path_part = ".safetensors",
                                  .n_skip = n_skip,
                                  .n_times = n_times,
                                  .effect = STI_FAULT_HANG};

    assert_int_equal(sti_fault_add_rule(flow->disk.fault, &rule), 0);
}

/* Plays the loop until so many operations wait and, with is_captured, nothing else is left
 * to be taken. */
static void
play_until(struct flow *flow, uint32_t n_pending, bool is_captured)
{
    const uint64_t deadline_ns = sti_clock_ns() + WAIT_NS;

    do {
        assert_true(sti_clock_ns() < deadline_ns);
        (void)sti_saver_step(flow->saver);
        (void)sti_aio_wait(flow->disk.aio, 1000000);
    } while (sti_aio_pending(flow->disk.aio) != n_pending ||
             (is_captured && sti_saver_wait(flow->saver, STI_LEVEL_CAPTURED, 0, NULL) < 0));
}

static void
play_to_the_end(struct flow *flow)
{
    struct sti_saver_status status;

    do {
        (void)sti_saver_step(flow->saver);
        (void)sti_aio_wait(flow->disk.aio, 1000000);
        sti_saver_get_status(flow->saver, &status);
    } while (status.unfinished > 0 || sti_aio_pending(flow->disk.aio) > 0);
    (void)sti_saver_step(flow->saver);
}

/* Half as many writes as slots are under way, though no tensor fills a slot; the others
 * are full by then. */
static void
test_half_the_slots_write(void **unused)
{
    struct flow flow;
    (void)unused;

    start(&flow, 1);
    hold_writes(&flow, 0, 0);
    assert_int_equal(save(&flow, 1, NULL), 0);
    play_until(&flow, IN_FLIGHT, false);
    sti_fault_clear_rules(flow.disk.fault);
    sti_fault_release(flow.disk.fault);
    play_to_the_end(&flow);
    assert_int_equal(sti_saver_wait(flow.saver, STI_LEVEL_DURABLE, 0, NULL), 0);
    stop(&flow);
}

/* Whichever of the first writes is held, all the others go on to the last byte: the queue
 * never empties to change buffers. */
static void
test_no_write_waits_for_another(void **unused)
{
    (void)unused;
    for (uint32_t held = 0; held < SLOTS; held++) {
        struct flow flow;

        start(&flow, 1);
        hold_writes(&flow, held, 1);
        assert_int_equal(save(&flow, 1, NULL), 0);
        play_until(&flow, 1, true);
        assert_int_equal(sti_saver_wait(flow.saver, STI_LEVEL_DURABLE, 1000000, NULL), -ETIMEDOUT);
        sti_fault_release(flow.disk.fault);
        play_to_the_end(&flow);
        assert_int_equal(sti_saver_wait(flow.saver, STI_LEVEL_DURABLE, 0, NULL), 0);
        stop(&flow);
    }
}

/* With all writes held the slots hold the first tensors, which are free then, and no
 * others. */
static void
test_fence_of_one_tensor(void **unused)
{
    struct flow flow;
    stk_error err;
    (void)unused;

    start(&flow, 1);
    hold_writes(&flow, 0, 0);
    assert_int_equal(save(&flow, 1, NULL), 0);
    play_until(&flow, IN_FLIGHT, false);
    const uint32_t n_free = (SLOTS * SLOT_BYTES - HEADER_BYTES) / TENSOR_BYTES;
    for (uint32_t tensor = 0; tensor < n_free; tensor++)
        assert_int_equal(sti_saver_fence_tensor(flow.saver, tensor, NULL), 0);
    assert_int_equal(sti_saver_wait(flow.saver, STI_LEVEL_CAPTURED, 1000000, &err), -ETIMEDOUT);
    assert_non_null(strstr(err.message, "not yet captured"));
    assert_int_equal(sti_saver_wait(flow.saver, STI_LEVEL_DURABLE, 1000000, &err), -ETIMEDOUT);
    assert_non_null(strstr(err.message, "not yet durable"));
    assert_int_equal(sti_saver_fence_tensor(flow.saver, N_TENSORS, NULL), -ERANGE);
    sti_fault_clear_rules(flow.disk.fault);
    sti_fault_release(flow.disk.fault);
    play_to_the_end(&flow);
    assert_int_equal(sti_saver_fence(flow.saver, NULL), 0);
    stop(&flow);
}

/* A write that fails when others are held: the fence ends though not all was captured,
 * since nobody will read the tensors any more; the next call says step, part and what. */
static void
test_failure_ends_fences(void **unused)
{
    struct flow flow;
    stk_error err;
    struct sti_fault_rule rule = {.op_idx = STI_FAULT_ANY,
                                  .kinds = BIT(STI_AIO_WRITE),
                                  .n_skip = 2,
                                  .effect = STI_FAULT_FAIL,
                                  .error = EIO};
    (void)unused;

    start(&flow, 1);
    assert_int_equal(sti_fault_add_rule(flow.disk.fault, &rule), 0);
    assert_int_equal(save(&flow, 12, NULL), 0);
    play_to_the_end(&flow);
    assert_int_equal(sti_saver_fence(flow.saver, &err), -EIO);
    assert_non_null(strstr(err.message, "step 12 failed: write of part 0 in root ."));
    assert_non_null(strstr(err.path, "step-12."));
    sti_fault_clear_rules(flow.disk.fault);
    assert_int_equal(save(&flow, 12, &err), 0); /* told once */
    play_to_the_end(&flow);
    assert_int_equal(sti_saver_wait(flow.saver, STI_LEVEL_DURABLE, 0, NULL), 0);
    stop(&flow);
}

/* Several saves that wait are each one of its own, in their order; the failure of one is
 * none of the others'. */
static void
test_outstanding(void **unused)
{
    struct flow flow;
    struct sti_saver_status status;
    stk_error err;
    struct sti_fault_rule rule = {.op_idx = STI_FAULT_ANY,
                                  .kinds = BIT(STI_AIO_SYNC),
                                  .path_part = "step-2.",
                                  .effect = STI_FAULT_FAIL,
                                  .error = ENOSPC};
    (void)unused;

    start(&flow, STI_SAVES_MAX);
    assert_int_equal(sti_fault_add_rule(flow.disk.fault, &rule), 0);
    for (uint64_t step = 1; step <= STI_SAVES_MAX; step++)
        assert_int_equal(save(&flow, step, NULL), 0);
    sti_saver_get_status(flow.saver, &status);
    assert_int_equal(status.unfinished, STI_SAVES_MAX);
    play_to_the_end(&flow);
    assert_int_equal(sti_saver_wait(flow.saver, STI_LEVEL_DURABLE, 0, &err), -ENOSPC);
    assert_non_null(strstr(err.message, "step 2 failed: sync of part 0"));
    assert_int_equal(sti_saver_wait(flow.saver, STI_LEVEL_DURABLE, 0, NULL), 0);
    sti_saver_get_status(flow.saver, &status);
    assert_int_equal(status.durable, STI_SAVES_MAX - 1);
    assert_int_equal(status.failed, 1);
    for (uint64_t step = 1; step <= STI_SAVES_MAX; step++) {
        char path[64];

        (void)snprintf(path, sizeof(path), "/run/step-%u", (unsigned)step);
        assert_int_equal(fault_exists(&flow.disk, path), step != 2);
    }
    stop(&flow);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_half_the_slots_write),
        cmocka_unit_test(test_no_write_waits_for_another),
        cmocka_unit_test(test_fence_of_one_tensor),
        cmocka_unit_test(test_failure_ends_fences),
        cmocka_unit_test(test_outstanding),
    };

    assert_int_equal(sti_pool_open(&pool, 1, 0), 0);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    sti_pool_close(pool);
    return failed;
}
