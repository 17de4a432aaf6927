/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of the vote among ranks, and letters: bytes that the comm may have borrowed,
 * which are freed when nobody has them any more. The thread that owns the comm alone.
 */
#include "ckpt/vote_ranks_internal.h"

#include <string.h>

#include "base/crc32c.h"
#include "base/mem.h"

struct sti_vote_ranks *
sti_ranks_of(struct sti_vote *base)
{
    return (struct sti_vote_ranks *)(void *)base;
}

void
sti_ranks_put(unsigned char *bytes, uint64_t value, int n)
{
    for (int at = 0; at < n; at++)
        bytes[at] = (unsigned char)(value >> 8 * at);
}

uint64_t
sti_ranks_get(const unsigned char *bytes, int n)
{
    uint64_t value = 0;

    for (int at = n; at-- > 0;)
        value = value << 8 | bytes[at];
    return value;
}

void
sti_ranks_write_head(unsigned char *head, uint32_t what, int code, uint64_t serial,
                     uint64_t n_bytes)
{
    sti_ranks_put(head, what, 4);
    sti_ranks_put(head + 4, (uint32_t)code, 4);
    sti_ranks_put(head + 8, serial, 8);
    sti_ranks_put(head + 16, n_bytes, 8);
}

void
sti_ranks_wake(struct sti_vote_ranks *vote)
{
    struct sti_aio *aio = __atomic_load_n(&vote->aio, __ATOMIC_ACQUIRE);

    if (aio)
        sti_aio_wake(aio);
}

/* ---- letters -------------------------------------------------------------------- */

/* Takes bytes. NULL: no memory, and bytes are freed. */
struct sti_letter *
sti_letter_new(struct sti_vote_ranks *vote, char *bytes, uint64_t n_bytes)
{
    struct sti_letter *letter = sti_mem_new(1, sizeof(*letter));

    if (!letter) {
        sti_mem_free(bytes);
        return NULL;
    }
    *letter = (struct sti_letter){
        .vote = vote, .bytes = bytes, .n_bytes = n_bytes, .crc = sti_crc32c(0, bytes, n_bytes)};
    return letter;
}

void
sti_letter_drop(struct sti_letter *letter)
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
    struct sti_letter *letter = context;

    (void)code; /* who does not get it asks again */
    letter->n_lent--;
    letter->vote->n_lent--;
    sti_ranks_wake(letter->vote);
    if (letter->is_dropped)
        sti_letter_drop(letter);
}

void
sti_ranks_answer(struct sti_vote_ranks *vote, struct sti_comm_incoming *incoming, int code,
                 struct sti_letter *letter)
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

void
sti_ranks_answer_verdict(struct sti_vote_ranks *vote, struct sti_comm_incoming *incoming,
                         const struct sti_verdict *verdict)
{
    size_t n_text = strlen(verdict->text);
    char *bytes = sti_mem_new(STI_VERDICT_BYTES + n_text, 1);
    struct sti_letter *letter = NULL;

    if (bytes) {
        sti_ranks_put((unsigned char *)bytes, verdict->writer, 4);
        sti_ranks_put((unsigned char *)bytes + 4,
                      (verdict->keep_parts ? STI_VERDICT_KEEP_PARTS : 0) |
                          (verdict->must_drain ? STI_VERDICT_MUST_DRAIN : 0),
                      4);
        sti_ranks_put((unsigned char *)bytes + 8, verdict->n_published, 8);
        memcpy(bytes + STI_VERDICT_BYTES, verdict->text, n_text);
        letter = sti_letter_new(vote, bytes, STI_VERDICT_BYTES + n_text);
    }
    sti_ranks_answer(vote, incoming, verdict->code,
                     letter); /* without words where there is no memory */
    sti_letter_drop(letter);
}
