/* SPDX-License-Identifier: Apache-2.0 */
/* The catalogue, as a table and as a hash, against a plain list of what is in it. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tier/catalog.h"

#define RESIDENT 200
#define ROUNDS 60000

static uint64_t
draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

struct plain {
    uint64_t samples[RESIDENT];
    uint64_t addresses[RESIDENT];
    uint64_t n;
};

static uint64_t
plain_find(const struct plain *plain, uint64_t sample)
{
    for (uint64_t at = 0; at < plain->n; at++)
        if (plain->samples[at] == sample)
            return at;
    return UINT64_MAX;
}

static void
count(void *context, uint64_t sample, struct sti_entry *entry)
{
    struct plain *plain = context;
    uint64_t at = plain_find(plain, sample);

    assert_true(at != UINT64_MAX);
    assert_int_equal(entry->address, plain->addresses[at]);
    plain->n++;
}

static void
add(struct sti_catalog *catalog, struct plain *plain, uint64_t sample, uint64_t address)
{
    struct sti_entry *entry = sti_catalog_need(catalog, sample);

    assert_non_null(entry);
    assert_int_equal(entry->state, STI_SAMPLE_ABSENT);
    entry->state = STI_SAMPLE_PRESENT;
    entry->address = address;
    plain->samples[plain->n] = sample;
    plain->addresses[plain->n++] = address;
}

static void
take_out(struct sti_catalog *catalog, struct plain *plain, uint64_t at)
{
    struct sti_entry *entry = sti_catalog_find(catalog, plain->samples[at]);

    assert_non_null(entry);
    assert_int_equal(entry->address, plain->addresses[at]);
    entry->state = STI_SAMPLE_ABSENT;
    sti_catalog_forget(catalog, plain->samples[at]);
    plain->n--;
    plain->samples[at] = plain->samples[plain->n];
    plain->addresses[at] = plain->addresses[plain->n];
}

static void
check_kind(uint64_t n, uint64_t choices, bool is_table)
{
    struct sti_catalog *catalog;
    static struct plain plain;
    uint64_t state = n;

    plain.n = 0;
    assert_int_equal(sti_catalog_new(&catalog, n, RESIDENT), 0);
    assert_int_equal(sti_catalog_is_table(catalog), is_table);
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t sample = draw(&state) % choices * (n / choices);
        uint64_t at = plain_find(&plain, sample);
        struct sti_entry *entry = sti_catalog_find(catalog, sample);

        sti_catalog_prefetch(catalog, sample);
        if (at == UINT64_MAX) {
            assert_true(!entry || entry->state == STI_SAMPLE_ABSENT);
            if (plain.n < RESIDENT)
                add(catalog, &plain, sample, draw(&state) | UINT64_C(1) << 39);
        } else {
            take_out(catalog, &plain, at);
        }
        if (round % 1000 == 0) {
            uint64_t n_in = plain.n;

            plain.n = RESIDENT;
            memset(plain.samples + n_in, 0xff, (RESIDENT - n_in) * sizeof(uint64_t));
            struct plain seen = plain;
            seen.n = RESIDENT;
            plain.n = n_in;
            sti_catalog_each(catalog, count, &seen);
            assert_int_equal(seen.n, RESIDENT + n_in);
        }
    }
    sti_catalog_free(catalog);
}

static void
a_table_holds_what_was_put_in(void **state)
{
    (void)state;
    check_kind(1000, 1000, true);
    check_kind(250, 250, true);
}

static void
a_hash_holds_what_was_put_in(void **state)
{
    (void)state;
    check_kind(UINT64_C(1) << 40, 260, false);
    check_kind(UINT64_C(1) << 40, 100000, false);
    check_kind(STI_CATALOG_TABLE_MAX + 1, 300, false);
}

static void
a_full_hash_says_so(void **state)
{
    struct sti_catalog *catalog;

    (void)state;
    assert_int_equal(sti_catalog_new(&catalog, UINT64_C(1) << 45, 10), 0);
    for (uint64_t sample = 0; sample < 11; sample++)
        assert_non_null(sti_catalog_need(catalog, sample * 1000003));
    assert_null(sti_catalog_need(catalog, 7));
    assert_non_null(sti_catalog_need(catalog, 0));
    sti_catalog_forget(catalog, 7); /* not in: nothing happens */
    sti_catalog_forget(catalog, 1000003);
    assert_null(sti_catalog_find(catalog, 1000003));
    assert_non_null(sti_catalog_need(catalog, 7));
    sti_catalog_free(catalog);
    sti_catalog_free(NULL);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_holds_what_was_put_in),
        cmocka_unit_test(a_hash_holds_what_was_put_in),
        cmocka_unit_test(a_full_hash_says_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
