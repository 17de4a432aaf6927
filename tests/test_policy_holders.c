/* SPDX-License-Identifier: Apache-2.0 */
/* Who holds what, as each rank computes it for itself: all alike, each sample once, within
 * everybody's room, and the bound of all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "policy/holders.h"

#define SAMPLES 1001u
#define WORLD 4u
#define BYTES 10u

static struct sti_holders_opts
opts_of(uint32_t rank, const uint64_t *room_bytes)
{
    struct sti_holders_opts opts = {.epochs = 5, .same_bytes = BYTES, .room_bytes = room_bytes};
    const stk_order_opts order = {STK_ORDER_OPTS_INIT, .n = SAMPLES, .seed = 3, .world = WORLD,
                                  .rank = rank};

    assert_int_equal(sti_order_init(&opts.order, &order, NULL), 0);
    opts.used_length = sti_order_length(&opts.order);
    for (uint32_t at = 0; at < WORLD; at++)
        opts.total_bytes += room_bytes[at];
    return opts;
}

static void
make_all(struct sti_holders *all, const uint64_t *room_bytes, bool is_paper)
{
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        struct sti_holders_opts opts = opts_of(rank, room_bytes);

        opts.is_paper = is_paper;
        assert_int_equal(sti_holders_init(&all[rank], &opts), 0);
    }
}

static void
free_all(struct sti_holders *all)
{
    for (uint32_t rank = 0; rank < WORLD; rank++)
        sti_holders_fini(&all[rank]);
}

static void
each_sample_has_one_holder(void **state)
{
    const uint64_t rooms[WORLD] = {4000, 3000, 2000, 1040}; /* all, and some to spare */
    struct sti_holders all[WORLD];
    uint64_t held[WORLD] = {0};

    (void)state;
    make_all(all, rooms, false);
    for (uint64_t sample = 0; sample < SAMPLES; sample++) {
        uint32_t n_mine = 0;

        for (uint32_t rank = 0; rank < WORLD; rank++) {
            bool is_mine = sti_holders_is_mine(&all[rank], sample);
            uint32_t holder = sti_holders_next(&all[rank], sample, rank);

            n_mine += is_mine;
            held[rank] += is_mine ? BYTES : 0;
            assert_true(is_mine == (holder == STI_HOLDERS_NOBODY));
            if (is_mine)
                continue;
            assert_true(sti_holders_is_mine(&all[holder], sample));
            assert_int_equal(sti_holders_next(&all[rank], sample, holder), STI_HOLDERS_NOBODY);
        }
        assert_int_equal(n_mine, 1);
    }
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        assert_true(held[rank] <= rooms[rank]);
        assert_int_equal(held[rank], all[rank].mine_bytes);
        assert_int_equal(all[rank].n_mine, held[rank] / BYTES);
        assert_int_equal(sti_holders_bound(&all[rank], 0), SAMPLES * BYTES);
        assert_int_equal(sti_holders_bound(&all[rank], 3), 0);
        assert_int_equal(sti_holders_bound_until(&all[rank], 9), SAMPLES * BYTES);
    }
    free_all(all);
}

static void
what_does_not_fit_is_nobodys(void **state)
{
    const uint64_t rooms[WORLD] = {1000, 9, 0, 2000};
    struct sti_holders all[WORLD];
    uint64_t n_held = 0;

    (void)state;
    make_all(all, rooms, false);
    for (uint64_t sample = 0; sample < SAMPLES; sample++)
        for (uint32_t rank = 0; rank < WORLD; rank++)
            n_held += sti_holders_is_mine(&all[rank], sample);
    assert_int_equal(n_held, 300);
    assert_int_equal(all[1].n_mine, 0);
    assert_int_equal(sti_holders_bound(&all[2], 1), SAMPLES * BYTES - 3009);
    free_all(all);
}

/* Memory and SSDs: what does not go into the one goes onto the other, within both rooms; what
 * an SSD has from before stays with its rank and needs no room there. With and without a
 * table of counts. */
static void
ssds_hold_and_keep(void **state)
{
    static uint16_t warm[SAMPLES];
    const uint64_t rooms[WORLD] = {1000, 2000, 0, 1500};
    const uint64_t ssds[WORLD] = {3000, 0, 2020, 500}; /* free */
    struct sti_holders all[WORLD];

    (void)state;
    for (int is_warm = 0; is_warm < 2; is_warm++) {
        uint64_t ram_bytes[WORLD] = {0}, ssd_bytes[WORLD] = {0}, n_mine = 0;

        for (uint64_t sample = 0; sample < SAMPLES; sample++)
            warm[sample] = is_warm && sample % 4 == 1 ? 2 : STI_ASSIGN_COLD;
        for (uint32_t rank = 0; rank < WORLD; rank++) {
            struct sti_holders_opts opts = opts_of(rank, rooms);

            opts.ssd_bytes = ssds;
            opts.warm = warm;
            opts.total_bytes = SAMPLES * BYTES;
            assert_int_equal(sti_holders_init(&all[rank], &opts), 0);
            for (uint64_t sample = 0; sample < SAMPLES; sample++) {
                if (!sti_holders_is_mine(&all[rank], sample)) {
                    assert_true(warm[sample] != rank);
                    continue;
                }
                n_mine++;
                if (sti_holders_is_in_ram(&all[rank], sample))
                    ram_bytes[rank] += BYTES;
                else if (warm[sample] != rank)
                    ssd_bytes[rank] += BYTES;
            }
            assert_int_equal(all[rank].mine_bytes, ram_bytes[rank]);
            assert_true(ram_bytes[rank] <= rooms[rank] && ssd_bytes[rank] <= ssds[rank]);
            assert_int_equal(sti_holders_bound(&all[rank], 0),
                             is_warm ? (SAMPLES - 250) * BYTES : SAMPLES * BYTES);
            assert_int_equal(sti_holders_bound(&all[rank], 1), 0);
        }
        assert_int_equal(n_mine, SAMPLES);
        /* Where everybody's memory is filled first, each SSD has what is left. */
        assert_true(is_warm || ram_bytes[0] + ram_bytes[1] + ram_bytes[3] == 4500);
        free_all(all);
    }
}

/* On many ranks, by a keyed order and with memory enough, no table by sample is made; the same
 * ranks hold the same samples, in the same order of first use, as by one. */
static void
many_ranks_need_no_table(void **state)
{
    enum { MANY = 4096, N = 300001 };
    static uint32_t bytes[N];
    static uint64_t rooms[MANY];
    const uint32_t ranks[] = {0, 7, MANY - 1};
    struct sti_holders computed, table;

    (void)state;
    for (uint32_t at = 0; at < MANY; at++)
        rooms[at] = UINT64_C(74) * BYTES;
    for (uint32_t at = 0; at < N; at++)
        bytes[at] = BYTES;
    for (size_t at = 0; at < sizeof(ranks) / sizeof(ranks[0]); at++) {
        struct sti_holders_opts opts = {.first_epoch = 2,
                                        .epochs = 3,
                                        .same_bytes = BYTES,
                                        .room_bytes = rooms,
                                        .total_bytes = N * BYTES - 500};
        const stk_order_opts order = {
            STK_ORDER_OPTS_INIT, .kind = STK_ORDER_KEYED, .n = N,
            .seed = 3,           .world = MANY,           .rank = ranks[at]};

        assert_int_equal(sti_order_init(&opts.order, &order, NULL), 0);
        opts.used_length = sti_order_length(&opts.order);
        assert_int_equal(sti_holders_init(&computed, &opts), 0);
        assert_true(computed.is_computed);
        opts.bytes = bytes;
        assert_int_equal(sti_holders_init(&table, &opts), 0);
        assert_true(!table.is_computed && table.first);
        assert_int_equal(computed.n_mine, table.n_mine);
        assert_int_equal(computed.mine_bytes, table.mine_bytes);
        assert_memory_equal(computed.mine, table.mine, table.n_mine * sizeof(*table.mine));
        for (uint64_t sample = 0; sample < N; sample++) {
            assert_int_equal(sti_holders_next(&computed, sample, ranks[at]),
                             sti_holders_next(&table, sample, ranks[at]));
            assert_true(sti_holders_is_in_ram(&computed, sample) ==
                        sti_holders_is_in_ram(&table, sample));
        }
        for (uint64_t epoch = 0; epoch < 6; epoch++)
            assert_int_equal(sti_holders_bound(&computed, epoch), sti_holders_bound(&table, epoch));
        sti_holders_fini(&computed);
        sti_holders_fini(&table);
    }
    /* One rank has not enough: then there is a table. */
    struct sti_holders_opts opts = {.epochs = 1, .same_bytes = BYTES, .room_bytes = rooms};
    const stk_order_opts order = {STK_ORDER_OPTS_INIT, .kind = STK_ORDER_KEYED, .n = N,
                                  .world = MANY};
    rooms[9] = UINT64_C(73) * BYTES;
    assert_int_equal(sti_order_init(&opts.order, &order, NULL), 0);
    opts.used_length = sti_order_length(&opts.order);
    assert_int_equal(sti_holders_init(&table, &opts), 0);
    assert_false(table.is_computed);
    sti_holders_fini(&table);
}

/* By the published policy several may hold one, and each is found. */
static void
all_holders_are_found(void **state)
{
    const uint64_t rooms[WORLD] = {5000, 5000, 5000, 5000};
    struct sti_holders all[WORLD];
    uint64_t n_held = 0;

    (void)state;
    make_all(all, rooms, true);
    for (uint64_t sample = 0; sample < SAMPLES; sample++)
        for (uint32_t rank = 0; rank < WORLD; rank++) {
            uint32_t n_others = 0;

            for (uint32_t other = sti_holders_next(&all[rank], sample, rank);
                 other != STI_HOLDERS_NOBODY; other = sti_holders_next(&all[rank], sample, other)) {
                assert_true(other != rank && sti_holders_is_mine(&all[other], sample));
                n_others++;
            }
            for (uint32_t other = 0; other < WORLD; other++)
                n_others -= other != rank && sti_holders_is_mine(&all[other], sample);
            assert_int_equal(n_others, 0);
            n_held += sti_holders_is_mine(&all[rank], sample);
        }
    assert_int_equal(n_held, WORLD * 5000 / BYTES);
    free_all(all);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_sample_has_one_holder),
        cmocka_unit_test(what_does_not_fit_is_nobodys),
        cmocka_unit_test(ssds_hold_and_keep),
        cmocka_unit_test(many_ranks_need_no_table),
        cmocka_unit_test(all_holders_are_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
