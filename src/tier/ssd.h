/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The SSD tier of a loader: samples kept in cache directories, for this run and the next
 * job.
 *
 * A sample is written once. Before it is read from the origin, room for it is reserved in
 * a segment in memory; when it has come it is copied there with its CRC; full segments
 * are written with one direct write each and then noted in the catalogue. Reading is one
 * direct read that covers the sample's header and its bytes, and both are checked each
 * time, so that what the catalogue believes is only a hint: a sample that does not verify
 * is not here.
 *
 * Owned by the loop's thread, but for the two functions that say otherwise.
 */
#ifndef STI_TIER_SSD_H
#define STI_TIER_SSD_H

#include <stdbool.h>
#include <stdint.h>

#include "format/dataset.h"
#include "io/aio.h"
#include "model/hierarchy.h"
#include "policy/density.h"

struct sti_ssd;

/* Samples larger than this stay off the SSD: a segment holds at least one. */
#define STI_SSD_SAMPLE_MAX (UINT64_C(64) << 20)
/* Reads are aligned to what the file system asks for, at most this. */
#define STI_SSD_ALIGN_MAX 4096u

/* A directory's part in a loader. share_bytes: payload that this loader may keep in
 * it. */
struct sti_ssd_part {
    const char *path; /* borrowed as long as the tier is open */
    uint64_t share_bytes;
    uint64_t capacity_bytes; /* of the whole directory, or (is_apart) of this rank in it */
};

/*
 * on_trouble  a directory cannot be used (any more), or (is_full) takes nothing more; called
 *             once for each, on the loop's thread or in sti_ssd_open().
 */
struct sti_ssd_opts {
    const struct sti_dataset *dataset;
    struct sti_ssd_part parts[STI_SSDS_MAX];
    uint32_t n_parts;
    uint64_t dataset_id; /* sti_dataset_identity() */
    uint32_t slot;       /* of this rank among those of its machine, below STI_SSD_SLOTS_MAX */
    uint32_t n_slots;    /* 0: 1 */
    bool is_apart;       /* capacities are each rank's own */
    bool is_buffered;
    struct sti_aio *aio;
    void (*on_trouble)(void *context, const char *path, int code, bool is_full);
    void *context;
};

/* Opens the directories; one that cannot be used is reported and left out. Errors:
 * -ENOMEM. ret_ssd: returns owned. Blocks. */
int
sti_ssd_open(struct sti_ssd **ret_ssd, const struct sti_ssd_opts *opts);

/* Sets the sizes that belong here; before, none do. */
void
sti_ssd_set_range(struct sti_ssd *ssd, struct sti_ssd_range range);

/* Nothing may be under way (sti_ssd_finish()). NULL is allowed. */
void
sti_ssd_close(struct sti_ssd *ssd);

/* Bytes of samples that the tier can hold in all. */
uint64_t
sti_ssd_capacity_bytes(const struct sti_ssd *ssd);

struct sti_ssd_counts {
    uint64_t used_bytes;    /* of samples in the tier now */
    uint64_t written_bytes; /* by this run, headers and padding included */
    uint64_t n_refused;     /* samples that did not verify */
    uint32_t n_dropped;     /* directories given up */
};

struct sti_ssd_counts
sti_ssd_counts(const struct sti_ssd *ssd);

/* Whether a sample is in the tier. ssd may be NULL. */
bool
sti_ssd_has(const struct sti_ssd *ssd, uint64_t sample);

/* Whether it is in this rank's own part of it, not in what other ranks of the machine have put
 * into its directories. ssd may be NULL. */
bool
sti_ssd_has_own(const struct sti_ssd *ssd, uint64_t sample);

/* Whether it was when the tier was opened, be it still or not. ssd may be NULL. */
bool
sti_ssd_was_warm(const struct sti_ssd *ssd, uint64_t sample);

/* ---- writing ---- */

#define STI_SSD_NO_SLOT UINT32_MAX

/* Room for a sample in a segment. segment STI_SSD_NO_SLOT: none. */
struct sti_ssd_slot {
    uint32_t segment;
    uint32_t record;
};

/* Whether samples of n_bytes together could be reserved now or will never be; false: wait
 * for a segment to be written. ssd may be NULL. */
bool
sti_ssd_is_ready(struct sti_ssd *ssd, uint64_t n_samples, uint64_t n_bytes);

/* Reserves room for a sample that is about to be read from the origin, if it belongs
 * here. */
struct sti_ssd_slot
sti_ssd_reserve(struct sti_ssd *ssd, uint64_t sample, uint64_t n_bytes);

/* Copies the sample into its room and makes its CRC. Any thread, once for a slot. */
void
sti_ssd_fill(struct sti_ssd *ssd, struct sti_ssd_slot slot, const void *bytes);

/* The room is filled, or (is_good false) will not be. */
void
sti_ssd_settle(struct sti_ssd *ssd, struct sti_ssd_slot slot, bool is_good);

/* Writes what is not full yet. Returns whether nothing is under way any more. NULL:
 * true. */
bool
sti_ssd_finish(struct sti_ssd *ssd);

/* ---- reading: ssd_read.c ---- */

/* Where a sample is. bytes: in memory, in a segment not written yet; else NULL. */
struct sti_ssd_place {
    const char *bytes;
    uint64_t offset; /* of its header in the data file */
    uint32_t dir;
};

/* False if the sample is not here. ssd may be NULL. */
bool
sti_ssd_find(const struct sti_ssd *ssd, uint64_t sample, struct sti_ssd_place *ret_place);

/* Bytes of a read beyond its sample, at most. */
#define STI_SSD_PADDING_BYTES (64u + 2 * STI_SSD_ALIGN_MAX)

/* Makes op read a sample of n_bytes into bytes (aligned to STI_SSD_ALIGN_MAX). Returns
 * how many bytes lie before the sample. */
uint64_t
sti_ssd_prepare(const struct sti_ssd *ssd, const struct sti_ssd_place *place, uint64_t n_bytes,
                void *bytes, struct sti_aio_op *op);

/* Whether what a prepared op has read is the sample: 0, the read's error, or
 * STK_E_CORRUPT. Any thread. */
int
sti_ssd_check(const struct sti_ssd *ssd, const struct sti_ssd_place *place, uint64_t sample,
              uint64_t n_bytes, const struct sti_aio_op *op);

/* A sample could not be read (code of sti_ssd_check()): it is forgotten; with an error of
 * the device the whole directory is. */
void
sti_ssd_lose(struct sti_ssd *ssd, const struct sti_ssd_place *place, uint64_t sample, int code);

#endif
