/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fault method of aio: a file system in memory, for tests, that can be told to fail
 * and to lose power. It is deterministic and all of it runs on the owner's thread.
 *
 * What a program may rely on after a crash, and not a bit more:
 *   - A completed SYNC (SYNC_DIR) of an object makes durable what had completed on that object
 *     when the sync was submitted. An object is a file (bytes and size) or a directory (names).
 *   - Of everything else any part may be there: a write without the earlier one, a size without
 *     its bytes (zeros), some 512-byte sectors of a write, a name without its file's bytes.
 *   - A rename within a directory is atomic, and so is a directory's rename. A file renamed to
 *     another directory may have both names, never none.
 *   - After a failed sync, what it covered is lost to later syncs, though reads still show it.
 *
 * Time is counted in steps: each operation takes one when its effect becomes visible (it
 * is issued) and one when it completes. To test recovery, run a scenario once and ask for
 * the number of steps; then, for each step, run it anew with the power cut there, and for
 * each variant open what is left and recover:
 *
 *     for (step = 0; step <= n_steps; step++)
 *         sti_fault_new(&fault), sti_fault_crash_at(fault, step), scenario(fault)
 *         for (variant = 0; variant < sti_fault_variants(fault); variant++)
 *             sti_fault_new_crashed(&left, fault, variant), recover(left)
 *
 * The root directory exists and is what AT_FDCWD means. There are no links and no
 * permissions.
 */
#ifndef STI_IO_FAULT_H
#define STI_IO_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sti_fault;

/* An empty file system. ret_fault: returns owned. Errors: -ENOMEM. */
int
sti_fault_new(struct sti_fault **ret_fault);

/*
 * What is found after a crash: the durable state and the variant's part of the rest. The
 * pair (from, variant) is a value: the same pair gives the same file system each time, as
 * long as from has no power or is not used. Rules and order are not inherited. variant:
 * below sti_fault_variants(from). Errors: -ENOMEM, -EINVAL.
 */
int
sti_fault_new_crashed(struct sti_fault **ret_fault, const struct sti_fault *from, uint64_t variant);

/* Its aio must have been closed. NULL is allowed. */
void
sti_fault_free(struct sti_fault *fault);

/* In how many ways a crash now can end: nothing of what is not durable, all of it, all
 * but each one, each one alone, 64 seeded parts, and three ways to tear each write of
 * several sectors. */
uint64_t
sti_fault_variants(const struct sti_fault *fault);

/* Cuts the power before a step (0 is the first): it and all that follow give -EIO and
 * change nothing. UINT64_MAX: never. */
void
sti_fault_crash_at(struct sti_fault *fault, uint64_t step);

/* Steps taken so far. */
uint64_t
sti_fault_steps(const struct sti_fault *fault);

/* Operations issued so far: the next one's index. */
uint64_t
sti_fault_ops(const struct sti_fault *fault);

/* Whether the power has been cut. */
bool
sti_fault_is_off(const struct sti_fault *fault);

/* Issues and completes operations in a seeded order, one or a few at a time. 0: in
 * order. */
void
sti_fault_reorder(struct sti_fault *fault, uint64_t seed);

/* Descriptors not closed. */
uint32_t
sti_fault_open_files(const struct sti_fault *fault);

/*
 * Puts a file with these bytes at a path, durably, in place of what is there; its
 * directory must exist. For what a test finds on the disk, and for decay of what it has
 * written. Errors: -ENOMEM, -ENOENT, -ENOTDIR, -EISDIR, -EFBIG.
 */
int
sti_fault_put_file(struct sti_fault *fault, const char *path, const void *bytes, size_t n_bytes);

enum sti_fault_effect {
    STI_FAULT_FAIL,  /* error, and no effect; a sync loses what it covered */
    STI_FAULT_SHORT, /* reads and writes do n_bytes at most */
    STI_FAULT_DELAY, /* completes after n_later other completions, or when no other is left */
    STI_FAULT_HANG,  /* has its effect but does not complete before sti_fault_release() */
};

#define STI_FAULT_ANY UINT64_MAX

/* Which operations meet with what. The first rule that matches counts. */
struct sti_fault_rule {
    uint64_t op_idx;       /* the operation of this index, or STI_FAULT_ANY */
    uint32_t kinds;        /* 1 << STI_AIO_..., or-ed; 0: every kind */
    const char *path_part; /* NULL, or part of its path, or of the path its descriptor was
                              opened by; borrowed until rules are cleared */
    uint32_t n_skip;       /* so many that match are let pass first */
    uint32_t n_times;      /* and then so many are hit; 0: all */
    enum sti_fault_effect effect;
    int error; /* FAIL: positive errno */
    uint32_t n_bytes;
    uint32_t n_later;
};

/* Errors: -ENOSPC at the 17th. */
int
sti_fault_add_rule(struct sti_fault *fault, const struct sti_fault_rule *rule);

void
sti_fault_clear_rules(struct sti_fault *fault);

/* Lets complete what hangs; rules stay. An aio with hanging operations does not close
 * before. */
void
sti_fault_release(struct sti_fault *fault);

#endif
