/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known of each sample: whether it is in memory and where, how often it is in
 * use, and where it stands among those that may go. A table by sample id, 16 bytes each;
 * for data sets too large for that a hash table of the samples that are in memory (24
 * bytes each at most 80 % full). Owned by the loop's thread.
 */
#ifndef STI_TIER_CATALOG_H
#define STI_TIER_CATALOG_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/place.h"

/* Samples of a table at most; beyond, a hash table is used. */
#define STI_CATALOG_TABLE_MAX (UINT64_C(1) << 30)
#define STI_CATALOG_PINS_MAX ((UINT32_C(1) << 20) - 1)
#define STI_CATALOG_ADDRESS_MAX ((UINT64_C(1) << 40) - 1)

enum sti_sample_state {
    STI_SAMPLE_ABSENT,  /* not in memory */
    STI_SAMPLE_READING, /* memory is set apart and a read is under way; key: first waiter */
    STI_SAMPLE_PRESENT, /* in memory; key: position of the next use, if kept by it */
    STI_SAMPLE_BAD,     /* cannot be had; stays so */
};

struct sti_entry {
    uint64_t address : 40; /* in the store */
    uint64_t pins : 20;    /* uses by batches; not 0: it may not go */
    uint64_t state : 2;    /* enum sti_sample_state */
    uint64_t kept : 2;     /* which index it is in while pins is 0: enum sti_kept */
    uint32_t key;
    uint32_t last; /* the horizon's: last known position + 1, low 32 bits; 0: none */
};

/* Which index of the evictor an unused sample is in. */
enum sti_kept {
    STI_KEPT_NOT,
    STI_KEPT_PINNED,  /* in none: it never goes */
    STI_KEPT_ORDERED, /* by next use, or by recency */
    STI_KEPT_UNKNOWN, /* its next use is not known */
};

struct sti_catalog;

/* A catalogue of n samples of which resident_max may be in memory at a time (for the
 * hash). Errors: -ENOMEM. ret_catalog: returns owned. */
int
sti_catalog_new(struct sti_catalog **ret_catalog, uint64_t n, uint64_t resident_max);

/* NULL is allowed. */
void
sti_catalog_free(struct sti_catalog *catalog);

bool
sti_catalog_is_table(const struct sti_catalog *catalog);

/* The entry of a sample, or NULL if the hash has none (it is absent then). Returns
 * borrowed until the next sti_catalog_need() or sti_catalog_forget(). */
struct sti_entry *
sti_catalog_find(struct sti_catalog *catalog, uint64_t sample);

/* The same, made if there is none; NULL when the hash is full. */
struct sti_entry *
sti_catalog_need(struct sti_catalog *catalog, uint64_t sample);

/* The sample is absent again and has no use: a table keeps its entry, a hash drops it. */
void
sti_catalog_forget(struct sti_catalog *catalog, uint64_t sample);

/* Asks the processor for the entry ahead of its use. */
void
sti_catalog_prefetch(const struct sti_catalog *catalog, uint64_t sample);

/* Calls fn for every entry that is not absent. fn may not add or forget. */
void
sti_catalog_each(struct sti_catalog *catalog,
                 void (*fn)(void *context, uint64_t sample, struct sti_entry *entry),
                 void *context);

#endif
