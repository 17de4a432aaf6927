/* SPDX-License-Identifier: Apache-2.0 */
/* What ssd.c (writing) and ssd_read.c (reading) share. */
#ifndef STI_TIER_SSD_INTERNAL_H
#define STI_TIER_SSD_INTERNAL_H

#include "base/mem.h"
#include "policy/shares.h"
#include "tier/ssd.h"
#include "tier/ssd_dir.h"

/* A segment on its way: filled in memory, then the data write, then the catalogue's. */
enum sti_segment_state {
    STI_SEGMENT_FREE,
    STI_SEGMENT_OPEN,    /* takes reservations; at most one */
    STI_SEGMENT_CLOSED,  /* takes none; written when all of them are settled */
    STI_SEGMENT_WRITING, /* to the data file */
    STI_SEGMENT_NOTING,  /* its entries, to the catalogue */
};

struct sti_segment_record {
    struct sti_ssd_record record;
    bool is_good; /* filled and settled */
};

struct sti_segment {
    struct sti_ssd *ssd;
    struct sti_aio_op op;
    enum sti_segment_state state;
    uint32_t dir;
    char *bytes;
    uint64_t offset;     /* in the data file; known from the first reservation on */
    uint64_t used_bytes; /* of bytes */
    uint64_t done_bytes; /* written so far */
    uint32_t n_records;
    uint32_t n_pending; /* reserved and not settled */
    struct sti_segment_record *records;
    char *entries; /* the catalogue's, encoded */
};

struct sti_ssd_part_state {
    struct sti_ssd_dir dir;
    const char *path;
    bool is_dropped;
    bool is_full; /* nothing more is written */
};

/* sti_ssd.places: 0: not in the tier; else ((offset / 64 + 1) << 9 | part). Bit 8 of it: was
 * there when the tier was opened (also alone, of a sample that was lost since). */
#define STI_PLACE_WARM UINT64_C(256)
#define STI_PLACE_SHIFT 9

/* What a sample takes beside its bytes, at most: header, alignment. */
#define STI_SSD_RECORD_EXTRA_BYTES (3 * (uint64_t)STI_SSD_HEADER_BYTES)
#define STI_SSD_UNIT_BYTES UINT64_C(4096)
#define STI_SSD_PARTS_MAX (STI_SSDS_MAX * STI_SSD_SLOTS_MAX)

_Static_assert(STI_SSD_PARTS_MAX <= STI_PLACE_WARM, "a part's number lies below the bit");

struct sti_ssd {
    struct sti_ssd_opts opts;
    struct sti_ssd_range range;
    uint64_t *places; /* by sample */
    /* This rank's own, one for each directory, then those of others that are read along. */
    struct sti_ssd_part_state parts[STI_SSD_PARTS_MAX];
    struct sti_share shares[STI_SSD_PARTS_MAX];
    uint64_t used_bytes[STI_SSD_PARTS_MAX];
    uint32_t n_parts;
    struct sti_arena arena;
    struct sti_segment *segments;
    uint32_t n_segments;
    uint32_t open_segment; /* STI_SSD_NO_SLOT: none */
    uint32_t records_max;  /* of a segment */
    uint64_t segment_bytes;
    uint64_t written_bytes;
    uint64_t n_refused;
};

static inline uint32_t
sti_place_dir(uint64_t place)
{
    return (uint32_t)(place & (STI_PLACE_WARM - 1));
}

static inline uint64_t
sti_place_offset(uint64_t place)
{
    return ((place >> STI_PLACE_SHIFT) - 1) * STI_SSD_HEADER_BYTES;
}

static inline uint64_t
sti_ssd_round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

void
sti_ssd_set_place(struct sti_ssd *ssd, uint64_t sample, uint32_t dir, uint64_t offset);

/* Nothing more is written to a directory. */
void
sti_ssd_stop_writing(struct sti_ssd *ssd, uint32_t dir, int code);

/* Forgets where a sample is. */
void
sti_ssd_forget(struct sti_ssd *ssd, uint64_t sample);

/* Gives a directory up. */
void
sti_ssd_drop(struct sti_ssd *ssd, uint32_t dir, int code);

#endif
