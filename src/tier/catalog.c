/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The catalogue. As a table, sample s has entry s. As a hash, linear probing with
 * deletion by shifting back, so that no search meets a tombstone: invariant, every entry
 * between a sample's home and its place is in use.
 */
#include "tier/catalog.h"

#include <errno.h>
#include <string.h>

#include "base/mem.h"

#define NO_SAMPLE UINT64_MAX

struct sti_catalog {
    struct sti_entry *entries;
    uint64_t *samples; /* hash only: whose entry it is */
    uint64_t n;        /* entries */
    uint64_t n_used;   /* hash only */
    uint64_t max_used;
};

int
sti_catalog_new(struct sti_catalog **ret_catalog, uint64_t n, uint64_t resident_max)
{
    struct sti_catalog *catalog = sti_mem_new(1, sizeof(*catalog));

    if (!catalog)
        return -ENOMEM;
    catalog->n = n;
    if (n > STI_CATALOG_TABLE_MAX) {
        catalog->max_used = resident_max + 1;
        for (catalog->n = 64; catalog->n * 4 / 5 < catalog->max_used;)
            catalog->n *= 2;
        catalog->samples = sti_mem_new(catalog->n, sizeof(uint64_t));
        if (!catalog->samples) {
            sti_catalog_free(catalog);
            return -ENOMEM;
        }
        memset(catalog->samples, 0xff, catalog->n * sizeof(uint64_t));
    }
    catalog->entries = sti_mem_new(catalog->n, sizeof(struct sti_entry));
    if (!catalog->entries) {
        sti_catalog_free(catalog);
        return -ENOMEM;
    }
    *ret_catalog = catalog;
    return 0;
}

void
sti_catalog_free(struct sti_catalog *catalog)
{
    if (!catalog)
        return;
    sti_mem_free(catalog->entries);
    sti_mem_free(catalog->samples);
    sti_mem_free(catalog);
}

bool
sti_catalog_is_table(const struct sti_catalog *catalog)
{
    return !catalog->samples;
}

/* A multiplicative hash (Knuth, TAOCP 3, 6.4) of a power-of-two table. */
static uint64_t
home_of(const struct sti_catalog *catalog, uint64_t sample)
{
    uint64_t mixed = (sample ^ (sample >> 29)) * UINT64_C(0x9e3779b97f4a7c15);

    return (mixed >> 16) & (catalog->n - 1);
}

static uint64_t
probe(const struct sti_catalog *catalog, uint64_t sample)
{
    uint64_t at = home_of(catalog, sample);

    while (catalog->samples[at] != sample && catalog->samples[at] != NO_SAMPLE)
        at = (at + 1) & (catalog->n - 1);
    return at;
}

struct sti_entry *
sti_catalog_find(struct sti_catalog *catalog, uint64_t sample)
{
    if (!catalog->samples)
        return &catalog->entries[sample];
    uint64_t at = probe(catalog, sample);
    return catalog->samples[at] == sample ? &catalog->entries[at] : NULL;
}

struct sti_entry *
sti_catalog_need(struct sti_catalog *catalog, uint64_t sample)
{
    if (!catalog->samples)
        return &catalog->entries[sample];
    uint64_t at = probe(catalog, sample);
    if (catalog->samples[at] == sample)
        return &catalog->entries[at];
    if (catalog->n_used == catalog->max_used)
        return NULL;
    catalog->n_used++;
    catalog->samples[at] = sample;
    memset(&catalog->entries[at], 0, sizeof(struct sti_entry));
    return &catalog->entries[at];
}

void
sti_catalog_forget(struct sti_catalog *catalog, uint64_t sample)
{
    if (!catalog->samples)
        return;
    uint64_t mask = catalog->n - 1;
    uint64_t hole = probe(catalog, sample);
    if (catalog->samples[hole] != sample)
        return;
    catalog->n_used--;
    for (uint64_t at = (hole + 1) & mask; catalog->samples[at] != NO_SAMPLE; at = (at + 1) & mask) {
        uint64_t home = home_of(catalog, catalog->samples[at]);

        /* It may move back unless its home lies after the hole. */
        if (((at - home) & mask) < ((at - hole) & mask))
            continue;
        catalog->samples[hole] = catalog->samples[at];
        catalog->entries[hole] = catalog->entries[at];
        hole = at;
    }
    catalog->samples[hole] = NO_SAMPLE;
}

void
sti_catalog_prefetch(const struct sti_catalog *catalog, uint64_t sample)
{
    if (!catalog->samples)
        __builtin_prefetch(&catalog->entries[sample], 1);
}

void
sti_catalog_each(struct sti_catalog *catalog,
                 void (*fn)(void *context, uint64_t sample, struct sti_entry *entry), void *context)
{
    for (uint64_t at = 0; at < catalog->n; at++) {
        uint64_t sample = catalog->samples ? catalog->samples[at] : at;

        if (sample != NO_SAMPLE && catalog->entries[at].state != STI_SAMPLE_ABSENT)
            fn(context, sample, &catalog->entries[at]);
    }
}
