/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The samplers of one process against a model that does what PyTorch's classes do, in
 * order and draw by draw, with nothing skipped or jumped over. (tests/torch_order.py
 * compares with PyTorch itself where there is one.)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "order/order.h"
#include "order/permutation.h"

#define MAX_N 700
#define MAX_SAMPLES 3000

static uint64_t
draw_seed(struct sti_mt19937 *engine)
{
    return sti_mt19937_u64(engine) & (UINT64_MAX >> 1);
}

static void
randperm(struct sti_mt19937 *engine, uint64_t n, uint32_t *out)
{
    struct sti_permutation permutation = sti_permutation_of(n, false);

    sti_permutation_write(engine, &permutation, out);
}

/* torch.utils.data.RandomSampler.__iter__ */
static void
random_sampler(const struct sti_order *order, struct sti_mt19937 *engine, uint32_t *out)
{
    uint32_t all[MAX_N];
    uint64_t done = 0;

    if (order->replacement) {
        for (; done < order->num_samples; done++)
            out[done] = sti_mt19937_u32(engine) % (uint32_t)order->n;
        return;
    }
    for (uint64_t i = 0; i < order->num_samples / order->n; i++, done += order->n)
        randperm(engine, order->n, out + done);
    randperm(engine, order->n, all);
    memcpy(out + done, all, order->num_samples % order->n * sizeof(*all));
}

/* A chunk of torchdata's sampler iterator; returns how many ids it has. */
static uint64_t
stateful_chunk(const struct sti_order *order, struct sti_mt19937 *engine, uint32_t *out)
{
    if (!order->replacement) {
        randperm(engine, order->n, out);
        return order->n;
    }
    for (uint32_t i = 0; i < 32; i++)
        out[i] = sti_mt19937_u32(engine) % (uint32_t)order->n;
    return 32;
}

static void
stateful_sampler(const struct sti_order *order, struct sti_mt19937 *engine, bool used,
                 uint32_t *out)
{
    uint32_t chunk[MAX_N];
    uint64_t n_chunk = stateful_chunk(order, engine, chunk);
    uint64_t at = 0;

    for (uint64_t done = 0; used && done < order->num_samples; done++) {
        if (at == n_chunk) {
            n_chunk = stateful_chunk(order, engine, chunk);
            at = 0;
        }
        out[done] = chunk[at++];
    }
}

/* A program: the generators that it has, and its loader's next epoch. */
struct program {
    struct sti_mt19937 engine; /* the default one, or the caller's */
    struct sti_mt19937 sampler;
};

static void
start_program(const struct sti_order *order, struct program *program)
{
    sti_mt19937_seed(&program->engine, (uint64_t)order->seed);
    if (order->sampler == STK_SAMPLER_STATEFUL)
        sti_mt19937_seed(&program->sampler, draw_seed(&program->engine));
}

static void
run_epoch(const struct sti_order *order, struct program *program, uint64_t epoch, uint32_t *out)
{
    bool persistent = order->workers == STK_SAMPLER_WORKERS_PERSISTENT;
    bool makes_iterator = epoch == 0 || !persistent;

    if (order->sampler == STK_SAMPLER_STATEFUL) {
        if (order->workers != STK_SAMPLER_WORKERS_NONE && makes_iterator)
            stateful_sampler(order, &program->sampler, false, out);
        stateful_sampler(order, &program->sampler, true, out);
        return;
    }
    if (makes_iterator)
        (void)draw_seed(&program->engine);
    if (order->sampler == STK_SAMPLER_GENERATOR) {
        random_sampler(order, &program->engine, out);
    } else {
        sti_mt19937_seed(&program->sampler, draw_seed(&program->engine));
        random_sampler(order, &program->sampler, out);
    }
}

static void
check_order(const struct sti_order *order)
{
    struct program program;
    uint32_t *expected = calloc(MAX_SAMPLES, sizeof(*expected));
    uint32_t *got = calloc(MAX_SAMPLES, sizeof(*got));
    void *scratch = malloc(sti_order_scratch_bytes(order));
    struct sti_order_cursor cursor = {0};

    assert_true(expected && got && scratch);
    start_program(order, &program);
    for (uint64_t epoch = 0; epoch < 6; epoch++) {
        run_epoch(order, &program, epoch, expected);
        sti_order_epoch(order, epoch, NULL, got, scratch);
        assert_memory_equal(expected, got, order->length * sizeof(*got));
        sti_order_epoch(order, epoch, &cursor, got, scratch);
        assert_memory_equal(expected, got, order->length * sizeof(*got));
    }
    free(expected);
    free(got);
    free(scratch);
}

static void
test_samplers(void **state)
{
    static const uint64_t ns[] = {1, 2, 10, 313, MAX_N};
    const uint32_t replacement[] = {0, 0, 0, 0, 1, 1, 1, 1};

    (void)state;
    for (uint32_t i = 0; i < 9 * 5 * 8; i++) {
        uint64_t n = ns[i / 9 % 5];
        const uint64_t samples[] = {0, n / 2 + 1, 2 * n, 2 * n + 3, 31, 32, 33, 0};
        stk_order_opts opts = {
            .n = n,
            .seed = (int64_t)i - 100,
            .sampler = STK_SAMPLER_DATALOADER + i % 3,
            .workers = i / 3 % 3,
            .num_samples = samples[i / 45],
            .replacement = replacement[i / 45],
        };
        struct sti_order order;

        assert_int_equal(sti_order_init(&order, &opts, NULL), 0);
        check_order(&order);
    }
}

/* Epochs whose place in the sequence is beyond walking, where the sum of draws passes
 * 2^64. */
static void
test_far_epochs(void **state)
{
    const stk_order_opts opts = {.n = 1 << 20, .sampler = STK_SAMPLER_GENERATOR, .seed = 1};
    const uint64_t epoch = UINT64_MAX / 3;
    struct sti_order order;

    (void)state;
    assert_int_equal(sti_order_init(&order, &opts, NULL), 0);
    uint32_t *direct = calloc(order.length, sizeof(*direct));
    uint32_t *rolled = calloc(order.length, sizeof(*rolled));
    void *scratch = malloc(sti_order_scratch_bytes(&order));
    struct sti_order_cursor cursor = {0};
    assert_true(direct && rolled && scratch);
    sti_order_epoch(&order, epoch - 1, &cursor, rolled, scratch);
    assert_int_equal(cursor.epoch, epoch);
    sti_order_epoch(&order, epoch, &cursor, rolled, scratch);
    sti_order_epoch(&order, epoch, NULL, direct, scratch);
    assert_memory_equal(direct, rolled, order.length * sizeof(*direct));
    free(direct);
    free(rolled);
    free(scratch);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samplers),
        cmocka_unit_test(test_far_epochs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
