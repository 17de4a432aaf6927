/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cache directory on disk: finding or making the subfolder of a data set, locking it,
 * reading its catalogue, and removing those of other data sets for room. All of it blocks
 * and happens when a loader is opened; what happens while it runs is ssd.c's.
 */
#ifndef STI_TIER_SSD_DIR_H
#define STI_TIER_SSD_DIR_H

#include <stdbool.h>
#include <stdint.h>

#include "io/dio.h"
#include "tier/ssd_format.h"

struct sti_ssd_dir {
    int dir_fd; /* the subfolder; descriptors are -1 where nothing is open */
    int lock_fd;
    int data_fd;
    int catalog_fd;
    struct sti_dio dio; /* of the data file */
    struct sti_ssd_identity identity;
    uint64_t data_end;    /* where the next segment goes */
    uint64_t catalog_end; /* where the next entry goes */
    uint64_t room_bytes;  /* what the data file may grow to */
    int read_only_code;   /* why it is not writable; -EBUSY: another job has it */
    bool is_readable;     /* there is a catalogue and a data file of this format */
    bool is_writable;     /* and they are ours to go on with */
};

/*
 * path            the cache directory. Borrowed for the call.
 * dataset_id      sti_dataset_identity().
 * slot            which of the machine's ranks has it.
 * is_apart        what the others have in the directory does not count.
 * is_beside       another rank's: read as it is, never made or locked.
 * capacity_bytes  of the whole directory, those of other data sets included.
 * want_bytes      what this data set's files may take of it.
 * is_buffered     no direct I/O.
 * on_record       called for every entry of the catalogue that may be true: within the data
 *                 file. Returns whether it is one.
 */
struct sti_ssd_dir_opts {
    const char *path;
    uint64_t dataset_id;
    uint32_t slot;
    bool is_apart;
    bool is_beside;
    uint64_t capacity_bytes;
    uint64_t want_bytes;
    bool is_buffered;
    bool (*on_record)(void *context, const struct sti_ssd_record *record);
    void *context;
};

/*
 * Opens the subfolder. Where another job has it, or it cannot be written, it is opened to
 * be read as it is; where there is nothing to be read, neither flag is set. Errors: what
 * opening the directory and making the files gives; the tier can then not be used.
 * Blocks.
 */
int
sti_ssd_dir_open(struct sti_ssd_dir *dir, const struct sti_ssd_dir_opts *opts);

/* Marks the catalogue as ended in order and closes everything. Nothing may be under
 * way. */
void
sti_ssd_dir_close(struct sti_ssd_dir *dir);

#endif
