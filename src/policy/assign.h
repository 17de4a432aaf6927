/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which ranks hold which samples for a whole run, from how often each rank reads each: a
 * table that every rank computes alike, without a message.
 *
 *   paper        each rank alone takes what it reads most, until it is full (Dryden et al.,
 *                SC'21). Popular samples are held many times and others by nobody.
 *   coordinated  every sample gets one holder, the rank that reads it most and has room; what
 *                is left of each rank's room is for copies (replica.h).
 *
 * Ties go by a hash keyed with rank and seed, or by id, as asked. Capacities may differ.
 * In a rank the RAM is filled before the SSD, by the same order. What an SSD has from an
 * earlier run stays with its rank: in the RAM that the others leave, or on the SSD where it
 * is. Pure; a table of counts is one byte per sample and rank.
 */
#ifndef STI_POLICY_ASSIGN_H
#define STI_POLICY_ASSIGN_H

#include <stdbool.h>
#include <stdint.h>

#define STI_ASSIGN_NOBODY UINT32_MAX
#define STI_ASSIGN_COLD UINT16_MAX

/* Which of the samples that a rank reads equally often it takes first. Where each rank
 * reads a sample rarely most are equal, and the rule decides how much the ranks hold
 * together. */
enum sti_assign_ties {
    STI_ASSIGN_TIES_RANDOM,   /* by a hash of rank and sample */
    STI_ASSIGN_TIES_ID,       /* the smaller id, on every rank: all take the same ones */
    STI_ASSIGN_TIES_UNSTABLE, /* as a sort that is not stable leaves them: alike, not equal */
};

/* What the ranks have and read. Borrowed. */
struct sti_assign_input {
    uint64_t n_samples;
    uint32_t n_ranks;
    const uint32_t *bytes; /* of each sample; NULL: all same_bytes */
    uint32_t same_bytes;
    const uint64_t *ram_bytes; /* of each rank */
    const uint64_t *ssd_bytes;
    const uint16_t *warm;  /* coordinated: whose SSD has a sample already, beside ssd_bytes; or
                             STI_ASSIGN_COLD. NULL: nobody's has any */
    const uint8_t *counts; /* [sample * n_ranks + rank]: uses; stays at UINT8_MAX once there */
    uint64_t seed;
    enum sti_assign_ties ties; /* paper */
};

/* Who holds what: a bit per sample and rank. */
struct sti_assignment {
    uint64_t n_samples;
    uint32_t n_ranks;
    uint32_t n_words;    /* of a sample's row */
    uint64_t *held;      /* [sample * n_words + rank / 64] */
    uint64_t *on_ssd;    /* of the held ones, those that are not in RAM */
    uint64_t *ram_bytes; /* what is left of each rank's room */
    uint64_t *ssd_bytes;
};

/* Errors: -ENOMEM. Ended with sti_assignment_fini() in any case. */
int
sti_assign_paper(struct sti_assignment *ret_assignment, const struct sti_assign_input *input);
int
sti_assign_coordinated(struct sti_assignment *ret_assignment, const struct sti_assign_input *input);

/* An assignment of nothing, to be filled with sti_assignment_hold(). counts is not
 * used. */
int
sti_assignment_init(struct sti_assignment *assignment, const struct sti_assign_input *input);

/* All zero is allowed. */
void
sti_assignment_fini(struct sti_assignment *assignment);

/* Gives a rank a sample, in RAM if there is room, else on its SSD. Returns whether there
 * was. */
bool
sti_assignment_hold(struct sti_assignment *assignment, uint64_t sample, uint32_t rank,
                    uint32_t n_bytes);

/* The same for a sample that the rank's SSD has: if not in RAM, it has its place. */
void
sti_assignment_hold_warm(struct sti_assignment *assignment, uint64_t sample, uint32_t rank,
                         uint32_t n_bytes);

static inline bool
sti_assignment_has(const struct sti_assignment *assignment, uint64_t sample, uint32_t rank)
{
    return assignment->held[sample * assignment->n_words + rank / 64] >> rank % 64 & 1;
}

static inline bool
sti_assignment_on_ssd(const struct sti_assignment *assignment, uint64_t sample, uint32_t rank)
{
    return assignment->on_ssd[sample * assignment->n_words + rank / 64] >> rank % 64 & 1;
}

/* Another rank than `rank` that holds a sample, the next one round from it: RAM before
 * SSD. STI_ASSIGN_NOBODY without one. */
uint32_t
sti_assignment_peer(const struct sti_assignment *assignment, uint64_t sample, uint32_t rank);

#endif
