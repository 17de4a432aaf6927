/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vote among ranks. A writer's ballot goes to rank 0 as a request, whose answer is the
 * verdict; what it has written may be large, so rank 0 fetches that by a request of its own.
 * A writer that loses the connection casts again, until its time is over; rank 0 remembers
 * what it has decided for those who ask late.
 *
 * A writer that never hears the verdict of a ballot for it knows nothing: it keeps its parts.
 * Rank 0 commits only with everybody's ballot, so a verdict that it gives for want of one is
 * certain.
 *
 * What rank 0 publishes with a verdict the others fetch in the same way from it, who want it.
 *
 * A message, little-endian: what (u32), code (i32), serial (u64), n_bytes (u64); a ballot
 * against has its words behind it. A verdict's body: writer (u32), flags (u32), n_published
 * (u64), words.
 */
#include "ckpt/vote_ranks.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/mem.h"
#include "ckpt/vote_internal.h"

#define RETRY_NS (STI_NS_PER_S / 4)
#define REMEMBERED 16u
#define HEAD_BYTES 24u
#define VERDICT_BYTES 16u
#define BODY_BYTES (VERDICT_BYTES + STK_ERROR_MESSAGE_SIZE)

enum { CAST = 1, FETCH = 2 };
enum { KEEP_PARTS = 1, MUST_DRAIN = 2 };
enum state { NOTHING_YET, WANTED, FETCHING, HERE };

struct ranks;

/* Bytes that the comm may have borrowed. */
struct letter {
    struct ranks *vote;
    char *bytes;
    uint64_t n_bytes;
    uint32_t crc;
    uint32_t n_lent;
    bool is_dropped; /* freed when nobody has it any more */
};

/* Rank 0: a ballot of a writer, and its question what was decided. */
struct entry {
    enum state state;
    struct sti_ballot ballot;
    struct sti_comm_incoming *incoming; /* to be answered with the verdict */
};

struct fetch {
    struct ranks *vote;
    uint64_t serial;
    uint32_t writer;
    char *bytes;
    unsigned char head[HEAD_BYTES];
    struct sti_comm_request request;
    struct fetch *next;
};

struct round {
    uint64_t serial; /* UINT64_MAX: none yet */
    uint64_t due_ns; /* everybody has voted, or it is over */
    bool is_decided;
    struct entry *entries; /* world; of rank 0 */
};

struct decided {
    uint64_t serial;
    struct sti_verdict verdict;
};

/* Another: what rank 0 has published with its verdict, as far as it is here. */
struct reading {
    char *bytes;
    uint64_t n_bytes;
    uint64_t due_ns; /* 0: not begun */
    uint64_t retry_ns;
    int code; /* 1: it is here; 0: not yet; else why not */
    bool is_asking;
    unsigned char head[HEAD_BYTES];
    struct sti_comm_request request;
};

struct ranks {
    struct sti_vote base;
    struct sti_vote_ranks_opts opts;
    uint32_t rank;
    uint32_t world;
    struct sti_aio *aio; /* atomic: given by any thread */
    uint32_t n_lent;     /* letters that the comm has, times */
    bool is_leaving;

    /* Rank 0's. */
    struct round rounds[2];
    struct fetch *fetches;
    struct decided decided[REMEMBERED];
    struct letter *published; /* the last; NULL: none */
    uint64_t published_serial;

    /* Another's: the save that it votes on. */
    uint64_t serial;
    uint64_t due_ns;
    uint64_t retry_ns; /* when to ask again; UINT64_MAX: it is under way, or over */
    int code;
    bool is_asking;
    bool is_over;
    struct letter *letter;
    struct sti_verdict verdict;
    struct reading reading;
    unsigned char small[HEAD_BYTES + STK_ERROR_MESSAGE_SIZE];
    uint32_t n_small;
    unsigned char body[BODY_BYTES];
    struct sti_comm_request request;
};

static struct ranks *
ranks_of(struct sti_vote *base)
{
    return (struct ranks *)(void *)base;
}

/* ---- messages ---------------------------------------------------------------------- */

static void
put(unsigned char *bytes, uint64_t value, int n)
{
    for (int at = 0; at < n; at++)
        bytes[at] = (unsigned char)(value >> 8 * at);
}

static uint64_t
get(const unsigned char *bytes, int n)
{
    uint64_t value = 0;

    for (int at = n; at-- > 0;)
        value = value << 8 | bytes[at];
    return value;
}

static void
write_head(unsigned char *head, uint32_t what, int code, uint64_t serial, uint64_t n_bytes)
{
    put(head, what, 4);
    put(head + 4, (uint32_t)code, 4);
    put(head + 8, serial, 8);
    put(head + 16, n_bytes, 8);
}

static void
wake(struct ranks *vote)
{
    struct sti_aio *aio = __atomic_load_n(&vote->aio, __ATOMIC_ACQUIRE);

    if (aio)
        sti_aio_wake(aio);
}

/* ---- letters ----------------------------------------------------------------------- */

/* Takes bytes. NULL: no memory, and bytes are freed. */
static struct letter *
letter_new(struct ranks *vote, char *bytes, uint64_t n_bytes)
{
    struct letter *letter = sti_mem_new(1, sizeof(*letter));

    if (!letter) {
        sti_mem_free(bytes);
        return NULL;
    }
    *letter = (struct letter){
        .vote = vote, .bytes = bytes, .n_bytes = n_bytes, .crc = sti_crc32c(0, bytes, n_bytes)};
    return letter;
}

static void
letter_drop(struct letter *letter)
{
    if (!letter)
        return;
    letter->is_dropped = true;
    if (letter->n_lent > 0)
        return;
    sti_mem_free(letter->bytes);
    sti_mem_free(letter);
}

static void
on_letter_sent(void *context, int code)
{
    struct letter *letter = context;

    (void)code; /* who does not get it asks again */
    letter->n_lent--;
    letter->vote->n_lent--;
    wake(letter->vote);
    if (letter->is_dropped)
        letter_drop(letter);
}

static void
answer(struct ranks *vote, struct sti_comm_incoming *incoming, int code, struct letter *letter)
{
    struct sti_comm_answer given = {.code = code};

    if (letter && letter->n_bytes > 0) {
        letter->n_lent++;
        vote->n_lent++;
        given = (struct sti_comm_answer){.code = code,
                                         .body = letter->bytes,
                                         .n_bytes = letter->n_bytes,
                                         .crc = letter->crc,
                                         .has_crc = true,
                                         .done = on_letter_sent,
                                         .context = letter};
    }
    sti_comm_answer(vote->opts.comm, incoming, &given);
}

static void
answer_verdict(struct ranks *vote, struct sti_comm_incoming *incoming,
               const struct sti_verdict *verdict)
{
    size_t n_text = strlen(verdict->text);
    char *bytes = sti_mem_new(VERDICT_BYTES + n_text, 1);
    struct letter *letter = NULL;

    if (bytes) {
        put((unsigned char *)bytes, verdict->writer, 4);
        put((unsigned char *)bytes + 4,
            (verdict->keep_parts ? KEEP_PARTS : 0) | (verdict->must_drain ? MUST_DRAIN : 0), 4);
        put((unsigned char *)bytes + 8, verdict->n_published, 8);
        memcpy(bytes + VERDICT_BYTES, verdict->text, n_text);
        letter = letter_new(vote, bytes, VERDICT_BYTES + n_text);
    }
    answer(vote, incoming, verdict->code, letter); /* without words where there is no memory */
    letter_drop(letter);
}

/* ---- rank 0 ------------------------------------------------------------------------ */

static const struct sti_verdict *
remembered(const struct ranks *vote, uint64_t serial)
{
    const struct decided *decided = &vote->decided[serial % REMEMBERED];

    return decided->serial == serial ? &decided->verdict : NULL;
}

static void
clear(struct ranks *vote, struct round *round)
{
    for (uint32_t writer = 0; round->entries && writer < vote->world; writer++) {
        assert(!round->entries[writer].incoming);
        sti_mem_free(round->entries[writer].ballot.bytes);
        round->entries[writer] = (struct entry){0};
    }
}

/* The round of a save; NULL: it is over, or the one before it is not. */
static struct round *
round_of(struct ranks *vote, uint64_t serial)
{
    struct round *round = &vote->rounds[serial % 2];

    if (round->serial == serial)
        return round;
    if (round->serial != UINT64_MAX && (round->serial > serial || !round->is_decided))
        return NULL;
    clear(vote, round);
    round->serial = serial;
    round->is_decided = false;
    round->due_ns = sti_clock_ns() + vote->opts.timeout_ns;
    return round;
}

static void
on_fetched(struct sti_comm_request *request)
{
    struct fetch *fetch = request->context;
    struct ranks *vote = fetch->vote;
    struct round *round = &vote->rounds[fetch->serial % 2];
    struct entry *entry = &round->entries[fetch->writer];
    struct fetch **at = &vote->fetches;
    bool is_good = request->result == 0 && request->code == 0 && request->has_crc &&
                   request->n_bytes == request->into_bytes &&
                   request->crc == sti_crc32c(0, fetch->bytes, request->n_bytes);

    while (*at != fetch)
        at = &(*at)->next;
    *at = fetch->next;
    if (round->serial == fetch->serial && !round->is_decided && entry->state == FETCHING) {
        entry->state = is_good ? HERE : WANTED;
        if (is_good) {
            entry->ballot.bytes = fetch->bytes;
            fetch->bytes = NULL;
        }
    }
    sti_mem_free(fetch->bytes);
    sti_mem_free(fetch);
    wake(vote);
}

/* Begins to fetch what a writer has written; without memory or a way it is tried again. */
static void
begin_fetch(struct ranks *vote, const struct round *round, uint32_t writer)
{
    struct entry *entry = &round->entries[writer];
    struct fetch *fetch = sti_mem_new(1, sizeof(*fetch));

    if (!fetch)
        return;
    *fetch = (struct fetch){.vote = vote, .serial = round->serial, .writer = writer};
    fetch->bytes = sti_mem_new(entry->ballot.n_bytes, 1);
    write_head(fetch->head, FETCH, 0, round->serial, 0);
    fetch->request = (struct sti_comm_request){.peer = writer,
                                               .verb = vote->opts.verb,
                                               .small = fetch->head,
                                               .n_small = HEAD_BYTES,
                                               .into = fetch->bytes,
                                               .into_bytes = entry->ballot.n_bytes,
                                               .done = on_fetched,
                                               .context = fetch};
    if (!fetch->bytes || sti_comm_request(vote->opts.comm, &fetch->request) < 0) {
        sti_mem_free(fetch->bytes);
        sti_mem_free(fetch);
        return;
    }
    entry->state = FETCHING;
    fetch->next = vote->fetches;
    vote->fetches = fetch;
}

/* A ballot, the first time or again. words: of one against. */
static void
take_ballot(struct ranks *vote, struct round *round, uint32_t writer, struct sti_ballot ballot)
{
    struct entry *entry = &round->entries[writer];

    if (entry->state != NOTHING_YET) {
        sti_mem_free(ballot.bytes);
        return;
    }
    entry->ballot = ballot;
    entry->state = ballot.code < 0 || ballot.bytes ? HERE : WANTED;
    if (entry->state == WANTED)
        begin_fetch(vote, round, writer);
    wake(vote);
}

static void
on_cast(struct ranks *vote, struct sti_comm_incoming *incoming)
{
    const unsigned char *head = incoming->small;
    uint64_t serial = get(head + 8, 8);
    struct sti_ballot ballot = {.code = (int)(int32_t)get(head + 4, 4),
                                .n_bytes = get(head + 16, 8)};
    const struct sti_verdict *verdict = remembered(vote, serial);

    if (verdict) {
        answer_verdict(vote, incoming, verdict);
        return;
    }
    struct round *round = round_of(vote, serial);
    if (!round || ballot.n_bytes > STI_COMM_BODY_MAX ||
        (ballot.code < 0 && ballot.n_bytes != incoming->n_small - HEAD_BYTES)) {
        answer(vote, incoming,
               round || vote->rounds[serial % 2].serial > serial ? -ESTALE : -EAGAIN, NULL);
        return;
    }
    struct entry *entry = &round->entries[incoming->from];
    if (entry->incoming) /* its connection was lost */
        answer(vote, entry->incoming, -EAGAIN, NULL);
    entry->incoming = incoming;
    sti_comm_promise(vote->opts.comm, incoming); /* the verdict may take long */
    if (ballot.code < 0 && entry->state == NOTHING_YET) {
        ballot.bytes = sti_mem_new(ballot.n_bytes + 1, 1); /* without it the code is told */
        if (ballot.bytes)
            memcpy(ballot.bytes, head + HEAD_BYTES, ballot.n_bytes);
    }
    take_ballot(vote, round, incoming->from, ballot);
}

/* Who is the first that is against it, or has not voted; world: nobody. */
static uint32_t
first_against(const struct ranks *vote, const struct round *round, bool is_late)
{
    uint32_t late = vote->world;

    for (uint32_t writer = 0; writer < vote->world; writer++) {
        if (round->entries[writer].state == HERE && round->entries[writer].ballot.code < 0)
            return writer;
        if (is_late && late == vote->world && round->entries[writer].state != HERE)
            late = writer;
    }
    return late;
}

static bool
ranks_tally(struct sti_vote *base, uint64_t serial, struct sti_ballot *ballots,
            struct sti_verdict *ret_verdict, uint64_t *ret_due_ns)
{
    struct ranks *vote = ranks_of(base);
    const struct round *round = &vote->rounds[serial % 2];
    uint64_t now_ns = sti_clock_ns();
    uint32_t n_here = 0;

    *ret_due_ns = round->due_ns;
    for (uint32_t writer = 0; writer < vote->world; writer++) {
        if (round->entries[writer].state == WANTED)
            begin_fetch(vote, round, writer);
        if (round->entries[writer].state == WANTED)
            *ret_due_ns = now_ns + RETRY_NS;
        n_here += round->entries[writer].state == HERE;
    }
    uint32_t against = first_against(vote, round, now_ns >= round->due_ns);
    *ret_verdict = (struct sti_verdict){.writer = against};
    if (against < vote->world) {
        const struct entry *entry = &round->entries[against];
        bool is_late = entry->state != HERE;

        ret_verdict->code = is_late ? -ETIMEDOUT : entry->ballot.code;
        if (is_late)
            (void)snprintf(ret_verdict->text, sizeof(ret_verdict->text),
                           "it has not voted within %" PRIu64 " ms",
                           vote->opts.timeout_ns / (STI_NS_PER_S / 1000)); /* fits */
        else if (entry->ballot.bytes)
            (void)snprintf(ret_verdict->text, sizeof(ret_verdict->text), "%s",
                           entry->ballot.bytes); /* cut is fine */
        return true;
    }
    for (uint32_t writer = 0; n_here == vote->world && writer < vote->world; writer++)
        ballots[writer] = round->entries[writer].ballot;
    ret_verdict->writer = 0;
    return n_here == vote->world;
}

static int
ranks_publish(struct sti_vote *base, uint64_t serial, char *bytes, uint64_t n_bytes)
{
    struct ranks *vote = ranks_of(base);

    letter_drop(vote->published);
    vote->published = letter_new(vote, bytes, n_bytes);
    vote->published_serial = serial;
    return vote->published ? 0 : -ENOMEM;
}

static bool
has_published(const struct ranks *vote, uint64_t serial)
{
    return vote->published && vote->published_serial == serial;
}

static void
ranks_decide(struct sti_vote *base, uint64_t serial, const struct sti_verdict *given)
{
    struct ranks *vote = ranks_of(base);
    struct round *round = &vote->rounds[serial % 2];
    struct sti_verdict decided = *given;
    const struct sti_verdict *verdict = &decided;

    decided.n_published = has_published(vote, serial) ? vote->published->n_bytes : 0;
    vote->decided[serial % REMEMBERED] = (struct decided){serial, decided};
    if (round->serial != serial)
        return;
    round->is_decided = true;
    for (uint32_t writer = 0; writer < vote->world; writer++) {
        struct sti_comm_incoming *incoming = round->entries[writer].incoming;

        round->entries[writer].incoming = NULL;
        if (incoming)
            answer_verdict(vote, incoming, verdict);
    }
    clear(vote, round);
    wake(vote);
}

/* ---- another ----------------------------------------------------------------------- */

static void
know(struct ranks *vote, const struct sti_verdict *verdict)
{
    vote->verdict = *verdict;
    vote->is_over = true;
    vote->retry_ns = UINT64_MAX;
    letter_drop(vote->letter);
    vote->letter = NULL;
    wake(vote);
}

/* Rank 0 may have committed where this one was for it, and cannot have where it was not. */
static void
know_nothing(struct ranks *vote, int code)
{
    struct sti_verdict verdict = {.code = code, .keep_parts = vote->code == 0};

    (void)snprintf(verdict.text, sizeof(verdict.text),
                   "it has not said what became of the save, which may be there"); /* fits */
    know(vote, &verdict);
}

static void
on_answered(struct sti_comm_request *request)
{
    struct ranks *vote = request->context;
    struct sti_verdict verdict = {.code = request->code, .keep_parts = vote->code == 0};
    uint64_t now_ns = sti_clock_ns();

    vote->is_asking = false;
    if (request->result == -ECANCELED || request->code == -ESTALE) {
        know_nothing(vote, request->result < 0 ? request->result : -ESTALE);
    } else if (request->result < 0 || request->code == -EAGAIN) {
        vote->retry_ns = now_ns + RETRY_NS;
        wake(vote);
    } else {
        if (request->n_bytes >= VERDICT_BYTES) {
            size_t n_text = request->n_bytes - VERDICT_BYTES;

            verdict.writer = (uint32_t)get(vote->body, 4);
            verdict.keep_parts = (get(vote->body + 4, 4) & KEEP_PARTS) != 0;
            verdict.must_drain = (get(vote->body + 4, 4) & MUST_DRAIN) != 0;
            verdict.n_published = get(vote->body + 8, 8);
            memcpy(verdict.text, vote->body + VERDICT_BYTES, n_text);
            verdict.text[n_text < sizeof(verdict.text) ? n_text : sizeof(verdict.text) - 1] = '\0';
        }
        know(vote, &verdict);
    }
}

static void
ask(struct ranks *vote, uint64_t now_ns)
{
    if (now_ns >= vote->due_ns || vote->is_leaving) {
        know_nothing(vote, vote->is_leaving ? -ECANCELED : -ETIMEDOUT);
        return;
    }
    vote->request = (struct sti_comm_request){.peer = 0,
                                              .verb = vote->opts.verb,
                                              .small = vote->small,
                                              .n_small = vote->n_small,
                                              .into = vote->body,
                                              .into_bytes = sizeof(vote->body) - 1,
                                              .wait_ns = vote->due_ns - now_ns,
                                              .done = on_answered,
                                              .context = vote};
    vote->is_asking = sti_comm_request(vote->opts.comm, &vote->request) == 0;
    vote->retry_ns = vote->is_asking ? UINT64_MAX : now_ns + RETRY_NS;
}

static void
ranks_cast(struct sti_vote *base, uint32_t writer, uint64_t serial, const struct sti_ballot *given)
{
    struct ranks *vote = ranks_of(base);
    struct sti_ballot ballot = *given;
    uint64_t now_ns = sti_clock_ns();

    if (ballot.code < 0 && ballot.n_bytes >= STK_ERROR_MESSAGE_SIZE)
        ballot.n_bytes = STK_ERROR_MESSAGE_SIZE - 1;
    if (vote->rank == 0) {
        struct round *round = round_of(vote, serial);

        assert(round); /* its own verdict on the one before is known */
        take_ballot(vote, round, writer, ballot);
        return;
    }
    assert(!vote->reading.is_asking); /* the saver has waited for it */
    sti_mem_free(vote->reading.bytes);
    vote->reading = (struct reading){0};
    vote->serial = serial;
    vote->code = ballot.code;
    vote->is_over = false;
    vote->due_ns = now_ns + 2 * vote->opts.timeout_ns;
    vote->n_small = HEAD_BYTES;
    write_head(vote->small, CAST, ballot.code, serial, ballot.bytes ? ballot.n_bytes : 0);
    if (ballot.code < 0 && ballot.bytes) {
        memcpy(vote->small + HEAD_BYTES, ballot.bytes, ballot.n_bytes);
        vote->n_small += (uint32_t)ballot.n_bytes;
        sti_mem_free(ballot.bytes);
    } else if (ballot.bytes) {
        vote->letter = letter_new(vote, ballot.bytes, ballot.n_bytes);
        if (!vote->letter) /* without it rank 0 cannot be for it */
            write_head(vote->small, CAST, vote->code = -ENOMEM, serial, 0);
    }
    ask(vote, now_ns);
}

static bool
ranks_verdict(struct sti_vote *base, uint64_t serial, struct sti_verdict *ret_verdict,
              uint64_t *ret_due_ns)
{
    struct ranks *vote = ranks_of(base);
    uint64_t now_ns = sti_clock_ns();

    if (vote->rank == 0) {
        const struct sti_verdict *verdict = remembered(vote, serial);

        *ret_due_ns = UINT64_MAX;
        if (verdict)
            *ret_verdict = *verdict;
        return verdict != NULL;
    }
    if (!vote->is_over && vote->retry_ns <= now_ns)
        ask(vote, now_ns);
    *ret_due_ns = vote->retry_ns;
    if (vote->is_over)
        *ret_verdict = vote->verdict;
    return vote->is_over;
}

/* ---- what is published -------------------------------------------------------------- */

static void
on_read(struct sti_comm_request *request)
{
    struct ranks *vote = request->context;
    struct reading *reading = &vote->reading;

    reading->is_asking = false;
    if (request->result == 0 && request->code == 0 && request->has_crc &&
        request->n_bytes == reading->n_bytes &&
        request->crc == sti_crc32c(0, reading->bytes, request->n_bytes))
        reading->code = 1;
    else if (request->result == -ECANCELED)
        reading->code = -ECANCELED;
    else if (request->result == 0 && request->code < 0 && request->code != -EAGAIN)
        reading->code = request->code; /* it has gone on without this rank */
    else
        reading->retry_ns = sti_clock_ns() + RETRY_NS;
    wake(vote);
}

static void
ask_for_published(struct ranks *vote, uint64_t now_ns)
{
    struct reading *reading = &vote->reading;

    if (reading->due_ns == 0) {
        reading->due_ns = now_ns + 2 * vote->opts.timeout_ns;
        reading->n_bytes = vote->verdict.n_published;
        reading->bytes =
            reading->n_bytes <= STI_COMM_BODY_MAX ? sti_mem_new(reading->n_bytes, 1) : NULL;
    }
    if (!reading->bytes || now_ns >= reading->due_ns || vote->is_leaving) {
        reading->code = !reading->bytes ? -ENOMEM : vote->is_leaving ? -ECANCELED : -ETIMEDOUT;
        return;
    }
    write_head(reading->head, FETCH, 0, vote->serial, 0);
    reading->request = (struct sti_comm_request){.peer = 0,
                                                 .verb = vote->opts.verb,
                                                 .small = reading->head,
                                                 .n_small = HEAD_BYTES,
                                                 .into = reading->bytes,
                                                 .into_bytes = reading->n_bytes,
                                                 .done = on_read,
                                                 .context = vote};
    reading->is_asking = sti_comm_request(vote->opts.comm, &reading->request) == 0;
    reading->retry_ns = now_ns + RETRY_NS;
}

static int
ranks_published(struct sti_vote *base, uint64_t serial, const char **ret_bytes,
                uint64_t *ret_n_bytes, uint64_t *ret_due_ns)
{
    struct ranks *vote = ranks_of(base);
    struct reading *reading = &vote->reading;
    uint64_t now_ns = sti_clock_ns();

    *ret_due_ns = UINT64_MAX;
    if (vote->rank == 0) {
        if (!has_published(vote, serial))
            return -ENOENT;
        *ret_bytes = vote->published->bytes;
        *ret_n_bytes = vote->published->n_bytes;
        return 1;
    }
    if (vote->serial != serial || !vote->is_over || vote->verdict.n_published == 0)
        return -ENOENT;
    if (reading->code == 0 && !reading->is_asking && now_ns >= reading->retry_ns)
        ask_for_published(vote, now_ns);
    if (reading->code == 0 && !reading->is_asking)
        *ret_due_ns = reading->retry_ns;
    *ret_bytes = reading->bytes;
    *ret_n_bytes = reading->n_bytes;
    return reading->code;
}

/* ---- all --------------------------------------------------------------------------- */

void
sti_vote_ranks_on_request(void *context, struct sti_comm_incoming *incoming)
{
    struct ranks *vote = ranks_of(context);
    const unsigned char *head = incoming->small;
    uint32_t what = incoming->n_small >= HEAD_BYTES ? (uint32_t)get(head, 4) : 0;

    if (vote->is_leaving)
        answer(vote, incoming, -ESTALE, NULL);
    else if (what == CAST && vote->rank == 0)
        on_cast(vote, incoming);
    else if (what == FETCH && incoming->from == 0 && vote->letter &&
             get(head + 8, 8) == vote->serial)
        answer(vote, incoming, 0, vote->letter);
    else if (what == FETCH && vote->rank == 0 && has_published(vote, get(head + 8, 8)))
        answer(vote, incoming, 0, vote->published);
    else
        answer(vote, incoming, -ENOENT, NULL);
}

static void
ranks_join(struct sti_vote *base, uint32_t writer, struct sti_aio *aio)
{
    (void)writer; /* this rank's */
    __atomic_store_n(&ranks_of(base)->aio, aio, __ATOMIC_RELEASE);
}

void
sti_vote_ranks_leave(struct sti_vote *base)
{
    struct ranks *vote = ranks_of(base);

    vote->is_leaving = true;
    if (vote->is_asking)
        sti_comm_cancel(vote->opts.comm, &vote->request);
    if (vote->reading.is_asking)
        sti_comm_cancel(vote->opts.comm, &vote->reading.request);
    for (struct fetch *fetch = vote->fetches; fetch; fetch = fetch->next)
        sti_comm_cancel(vote->opts.comm, &fetch->request);
    for (int at = 0; at < 2; at++)
        for (uint32_t writer = 0; vote->rounds[at].entries && writer < vote->world; writer++) {
            struct entry *entry = &vote->rounds[at].entries[writer];

            if (entry->incoming)
                answer(vote, entry->incoming, -ESTALE, NULL);
            entry->incoming = NULL;
        }
}

bool
sti_vote_ranks_is_idle(const struct sti_vote *base)
{
    const struct ranks *vote = (const struct ranks *)(const void *)base;

    return !vote->is_asking && !vote->reading.is_asking && !vote->fetches && vote->n_lent == 0;
}

static void
ranks_free(struct sti_vote *base)
{
    struct ranks *vote = ranks_of(base);

    assert(sti_vote_ranks_is_idle(base));
    for (int at = 0; at < 2; at++) {
        clear(vote, &vote->rounds[at]);
        sti_mem_free(vote->rounds[at].entries);
    }
    letter_drop(vote->letter);
    letter_drop(vote->published);
    sti_mem_free(vote->reading.bytes);
    sti_mem_free(vote);
}

static const struct sti_vote_method method = {.free = ranks_free,
                                              .join = ranks_join,
                                              .cast = ranks_cast,
                                              .tally = ranks_tally,
                                              .publish = ranks_publish,
                                              .published = ranks_published,
                                              .decide = ranks_decide,
                                              .verdict = ranks_verdict};

void
sti_vote_ranks_set_verb(struct sti_vote *base, uint32_t verb)
{
    ranks_of(base)->opts.verb = verb;
}

int
sti_vote_ranks_new(struct sti_vote **ret_vote, const struct sti_vote_ranks_opts *opts)
{
    struct ranks *vote = sti_mem_new(1, sizeof(*vote));

    if (!vote)
        return -ENOMEM;
    vote->base.method = &method;
    vote->opts = *opts;
    vote->rank = sti_comm_rank(opts->comm);
    vote->world = sti_comm_world(opts->comm);
    vote->retry_ns = UINT64_MAX;
    for (uint32_t at = 0; at < REMEMBERED; at++)
        vote->decided[at].serial = UINT64_MAX;
    for (int at = 0; at < 2; at++) {
        vote->rounds[at].serial = UINT64_MAX;
        if (vote->rank == 0)
            vote->rounds[at].entries = sti_mem_new(vote->world, sizeof(struct entry));
        if (vote->rank == 0 && !vote->rounds[at].entries) {
            ranks_free(&vote->base);
            return -ENOMEM;
        }
    }
    *ret_vote = &vote->base;
    return 0;
}
