/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the checkpointer share; nobody else includes this. */
#ifndef STI_CHECKPOINTER_CHECKPOINTER_INTERNAL_H
#define STI_CHECKPOINTER_CHECKPOINTER_INTERNAL_H

#include "checkpointer/checkpointer.h"
#include "checkpointer/team.h"
#include "ckpt/saver.h"
#include "ckpt/scan.h"

/* An option's defaults and bounds applied. */
struct sti_ckpt_resolved {
    uint64_t slot_bytes;
    uint32_t slots;
    uint32_t chunk_bytes;
    uint32_t outstanding;
    uint32_t keep;
    uint32_t n_roots;         /* directory included */
    uint32_t first_part_root; /* 0: the directory itself */
    uint32_t writers;         /* stk_writers */
    uint32_t shared_every;    /* 0: those that ask for it */
    uint32_t shared_keep;
    uint64_t vote_timeout_ns;
    bool is_buffered;
    bool is_read_only;
    bool is_alone;
    bool is_checked;
    bool is_of_node; /* directory and roots are each node's own */
    bool has_partner;
};

struct sti_checkpointer {
    struct sti_engine *engine;
    struct sti_ckpt_resolved resolved;
    char *directory;
    struct sti_root *roots;
    char *shared_directory; /* NULL: none */
    struct sti_root shared;
    struct sti_team team;
    struct sti_exchange *exchange; /* NULL: alone */
    struct sti_saver *saver;       /* NULL: read-only */
    struct sti_task task;
    struct sti_saver *drain; /* NULL: nothing is copied */
    struct sti_task drain_task;
    struct sti_saver *copier; /* NULL: nothing is copied from another node */
    struct sti_task copier_task;
    struct sti_pull pull;
};

/* Where checkpoints are looked for: scans[0] the directory, scans[1], if there is, the shared
 * one. The aio is the calling thread's, to be closed. Returns how many, or what opening it
 * gives. */
int
sti_checkpointer_scans(struct sti_checkpointer *checkpointer, struct sti_scan scans[2],
                       stk_error *err);

/* The newest whole checkpoint of all of them, and where it is. Returns how many newer ones are
 * not whole (err says what is wrong with the newest), or as sti_scan_latest(). */
int
sti_checkpointer_find_latest(const struct sti_scan *scans, int n_scans,
                             struct sti_manifest *manifest, const struct sti_scan **ret_scan,
                             stk_error *err);

/* For a reader of what is there of a checkpoint. */
struct sti_reader_opts
sti_view_part_opts(const struct sti_checkpointer *checkpointer, const struct sti_scan *scan);

/* Checks options. Errors: -EINVAL (err names the option and its range). Pure. */
int
sti_ckpt_resolve(struct sti_ckpt_resolved *ret_resolved, const stk_ckpt_opts *opts, stk_error *err);

/* The idx-th word of a list separated by blanks; returns its length, 0 beyond the
 * last. */
size_t
sti_ckpt_word(const char *list, uint32_t idx, const char **ret_word);

#endif
