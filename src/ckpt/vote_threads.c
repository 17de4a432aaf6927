/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vote among threads. Two rounds may be open at a time: a writer that knows a verdict
 * may cast on the next save while another has not looked yet; none can be two ahead,
 * because the verdict between needs everybody's ballot. So round r uses slot r modulo 2.
 *
 * Any thread enters; the lock (STI_RANK_VOTE) is held for copies only.
 */
#include "ckpt/vote_internal.h"

#include <errno.h>
#include <stdio.h>

#include "base/mem.h"
#include "base/thread.h"

#define WORLD_MAX 65536u

struct round {
    uint64_t serial; /* UINT64_MAX: none yet */
    uint32_t n_cast;
    uint32_t n_against;
    bool is_decided;
    struct sti_verdict against; /* the first that was */
    struct sti_verdict verdict;
    struct sti_ballot *ballots; /* world; their bytes are the vote's */
};

struct threads {
    struct sti_vote base;
    struct sti_mutex lock;
    uint32_t world;
    struct round rounds[2] STI_GUARDED_BY(&lock);
    struct sti_aio **aios STI_GUARDED_BY(&lock);
    char *published STI_GUARDED_BY(&lock); /* the last, which stays where it is */
    uint64_t n_published STI_GUARDED_BY(&lock);
    uint64_t published_serial STI_GUARDED_BY(&lock);
};

static struct threads *
threads_of(struct sti_vote *base)
{
    return (struct threads *)(void *)base;
}

static void
drop_ballots(struct round *round, uint32_t world)
{
    for (uint32_t writer = 0; round->ballots && writer < world; writer++) {
        sti_mem_free(round->ballots[writer].bytes);
        round->ballots[writer] = (struct sti_ballot){0};
    }
}

static void
threads_free(struct sti_vote *base) STI_NO_ANALYSIS
{
    struct threads *vote = threads_of(base);

    sti_mem_free(vote->aios);
    sti_mem_free(vote->published);
    for (int at = 0; at < 2; at++) {
        drop_ballots(&vote->rounds[at], vote->world);
        sti_mem_free(vote->rounds[at].ballots);
    }
    sti_mutex_fini(&vote->lock);
    sti_mem_free(vote);
}

static void
threads_join(struct sti_vote *base, uint32_t writer, struct sti_aio *aio)
{
    struct threads *vote = threads_of(base);

    sti_mutex_lock(&vote->lock);
    vote->aios[writer] = aio;
    sti_mutex_unlock(&vote->lock);
}

static struct round *
round_locked(struct threads *vote, uint64_t serial) STI_REQUIRES(&vote->lock)
{
    struct round *round = &vote->rounds[serial % 2];

    if (round->serial != serial) {
        drop_ballots(round, vote->world);
        round->serial = serial;
        round->n_cast = 0;
        round->n_against = 0;
        round->is_decided = false;
    }
    return round;
}

static void
wake_locked(struct threads *vote) STI_REQUIRES(&vote->lock)
{
    for (uint32_t writer = 0; writer < vote->world; writer++)
        if (vote->aios[writer])
            sti_aio_wake(vote->aios[writer]);
}

static void
threads_cast(struct sti_vote *base, uint32_t writer, uint64_t serial,
             const struct sti_ballot *ballot)
{
    struct threads *vote = threads_of(base);

    sti_mutex_lock(&vote->lock);
    struct round *round = round_locked(vote, serial);

    round->ballots[writer] = *ballot;
    round->n_cast++;
    if (ballot->code < 0 && round->n_against++ == 0) {
        round->against = (struct sti_verdict){.code = ballot->code, .writer = writer};
        (void)snprintf(round->against.text, sizeof(round->against.text), "%.*s",
                       (int)(ballot->n_bytes < STK_ERROR_MESSAGE_SIZE ? ballot->n_bytes : 0),
                       ballot->bytes ? ballot->bytes : ""); /* fits */
    }
    wake_locked(vote);
    sti_mutex_unlock(&vote->lock);
}

static bool
threads_tally(struct sti_vote *base, uint64_t serial, struct sti_ballot *ballots,
              struct sti_verdict *ret_verdict, uint64_t *ret_due_ns)
{
    struct threads *vote = threads_of(base);

    *ret_due_ns = UINT64_MAX; /* who casts or decides wakes all */
    sti_mutex_lock(&vote->lock);
    const struct round *round = round_locked(vote, serial);
    bool is_against = round->n_against > 0;
    bool is_certain = is_against || round->n_cast == vote->world;

    if (is_against)
        *ret_verdict = round->against;
    else if (is_certain) {
        *ret_verdict = (struct sti_verdict){.code = 0};
        for (uint32_t writer = 0; writer < vote->world; writer++)
            ballots[writer] = round->ballots[writer];
    }
    sti_mutex_unlock(&vote->lock);
    return is_certain;
}

static int
threads_publish(struct sti_vote *base, uint64_t serial, char *bytes, uint64_t n_bytes)
{
    struct threads *vote = threads_of(base);

    sti_mutex_lock(&vote->lock);
    char *old = vote->published;
    vote->published = bytes;
    vote->n_published = n_bytes;
    vote->published_serial = serial;
    sti_mutex_unlock(&vote->lock);
    sti_mem_free(old);
    return 0;
}

static int
threads_published(struct sti_vote *base, uint64_t serial, const char **ret_bytes,
                  uint64_t *ret_n_bytes, uint64_t *ret_due_ns)
{
    struct threads *vote = threads_of(base);

    *ret_due_ns = UINT64_MAX;
    sti_mutex_lock(&vote->lock);
    bool is_there = vote->published && vote->published_serial == serial;
    *ret_bytes = is_there ? vote->published : NULL;
    *ret_n_bytes = is_there ? vote->n_published : 0;
    sti_mutex_unlock(&vote->lock);
    return is_there ? 1 : -ENOENT;
}

static void
threads_decide(struct sti_vote *base, uint64_t serial, const struct sti_verdict *verdict)
{
    struct threads *vote = threads_of(base);

    sti_mutex_lock(&vote->lock);
    struct round *round = round_locked(vote, serial);

    round->is_decided = true;
    round->verdict = *verdict;
    round->verdict.n_published =
        vote->published && vote->published_serial == serial ? vote->n_published : 0;
    wake_locked(vote);
    sti_mutex_unlock(&vote->lock);
}

static bool
threads_verdict(struct sti_vote *base, uint64_t serial, struct sti_verdict *ret_verdict,
                uint64_t *ret_due_ns)
{
    struct threads *vote = threads_of(base);

    *ret_due_ns = UINT64_MAX; /* who casts or decides wakes all */
    sti_mutex_lock(&vote->lock);
    const struct round *round = round_locked(vote, serial);
    bool is_decided = round->is_decided;

    if (is_decided)
        *ret_verdict = round->verdict;
    sti_mutex_unlock(&vote->lock);
    return is_decided;
}

static const struct sti_vote_method method = {.free = threads_free,
                                              .join = threads_join,
                                              .cast = threads_cast,
                                              .tally = threads_tally,
                                              .publish = threads_publish,
                                              .published = threads_published,
                                              .decide = threads_decide,
                                              .verdict = threads_verdict};

/* Nobody else knows a vote while it is made or freed, so its lock is not taken there. */
int
sti_vote_new(struct sti_vote **ret_vote, uint32_t world) STI_NO_ANALYSIS
{
    if (world == 0 || world > WORLD_MAX)
        return -EINVAL;
    struct threads *vote = sti_mem_new(1, sizeof(*vote));
    if (!vote)
        return -ENOMEM;
    int rc = sti_mutex_init(&vote->lock, STI_RANK_VOTE);
    if (rc < 0) {
        sti_mem_free(vote);
        return rc;
    }
    vote->base.method = &method;
    vote->world = world;
    vote->aios = sti_mem_new(world, sizeof(struct sti_aio *));
    for (int at = 0; at < 2; at++) {
        vote->rounds[at].serial = UINT64_MAX;
        vote->rounds[at].ballots = sti_mem_new(world, sizeof(struct sti_ballot));
    }
    if (!vote->aios || !vote->rounds[0].ballots || !vote->rounds[1].ballots) {
        threads_free(&vote->base);
        return -ENOMEM;
    }
    *ret_vote = &vote->base;
    return 0;
}
