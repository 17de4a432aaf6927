/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that are held open: those that hold many samples. A bounded number of them; a
 * file that is not among them is read by operations that open and close it themselves, so
 * nothing ever waits for an open. Whoever opens one looks at it afterwards: where samples
 * begin is known for the file that was indexed and no other. Owned by the loop's thread.
 */
#ifndef STI_TIER_FILES_H
#define STI_TIER_FILES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "io/aio.h"
#include "model/extent.h"

enum sti_file_state {
    STI_FILE_EMPTY,
    STI_FILE_OPENING, /* and looked at */
    STI_FILE_OPEN,
    STI_FILE_CLOSING,  /* for the one that takes its place */
    STI_FILE_REFUSING, /* closed, since it is not the one that was indexed */
    STI_FILE_FAILED    /* cannot be opened, or refused; reading it says why */
};

struct sti_files;

struct sti_file_slot {
    struct sti_aio_op op;
    struct sti_files *files;
    struct sti_extent extent; /* names the file */
    struct statx found;
    enum sti_file_state state;
    uint32_t open_flags;
    uint32_t n_users; /* reads under way */
    int fd;
    uint64_t used_at; /* the count of uses when it was last wanted */
};

struct sti_files {
    struct sti_aio *aio; /* borrowed */
    uint32_t open_flags; /* O_DIRECT or 0 */
    uint32_t n_files;
    uint32_t n_slots;
    uint32_t n_used; /* slots that were ever taken: the first ones */
    uint32_t n_busy; /* slots with an operation under way */
    uint64_t n_uses;
    uint32_t *slot_of;           /* by file: 1 + its slot, 0 for none; owned */
    struct sti_file_slot *slots; /* owned */
};

/* n_files: files there are; limit: how many may be open. Both may be 0. Errors:
 * -ENOMEM. */
int
sti_files_init(struct sti_files *files, struct sti_aio *aio, uint32_t n_files, uint32_t limit,
               uint32_t open_flags);

/* Closes all. Nothing is under way (n_busy is 0) and nothing in use. All zero is
 * allowed. */
void
sti_files_fini(struct sti_files *files);

/* Opens a file at once, blocking, when nothing is under way. Errors: what opening gives;
 * as sti_files_compare(). */
int
sti_files_open_now(struct sti_files *files, const struct sti_extent *extent);

/*
 * The slot of the file of an extent, to be given back with sti_files_put(); its fd and
 * open_flags hold until then. NULL: the file is not open (yet).
 */
struct sti_file_slot *
sti_files_get(struct sti_files *files, const struct sti_extent *extent);

/*
 * Makes op look at the file of an extent, into found, after it was opened. The name is
 * looked up once more: one that was given to another file before the open is still that
 * other's then, so what was opened cannot be taken for what was indexed.
 */
void
sti_files_prepare_look(const struct sti_extent *extent, struct statx *found, struct sti_aio_op *op);

/* Whether what such an operation has found is what was indexed. Errors: STK_E_STALE it is
 * not, or gone; the operation's own. */
int
sti_files_compare(const struct sti_extent *extent, const struct sti_aio_op *op);

/* NULL is allowed. */
void
sti_files_put(struct sti_file_slot *slot);

#endif
