/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank joins the others: shows its card, reads theirs, and knows from then on who is
 * where, on which machine, and with which key they speak.
 */
#include "comm/comm_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "comm/start.h"

#define START_TIMEOUT_NS (60 * STI_NS_PER_S)

static int
make_card(struct sti_comm *comm, const struct sti_comm_opts *opts,
          const struct hmac_sha256_ctx *secret, unsigned char *bytes, stk_error *err)
{
    struct sti_card *card = sti_mem_new(1, sizeof(*card));
    int rc = -ENOMEM;

    if (!card)
        return sti_error_set(err, rc, "no memory for this rank's card");
    card->version = STI_CARD_VERSION;
    card->rank = opts->rank;
    card->world = opts->world;
    rc = sti_start_random(&card->incarnation, sizeof(card->incarnation));
    if (rc == 0)
        rc = sti_start_random(card->key, sizeof(card->key));
    if (rc < 0) {
        (void)sti_error_set(err, rc, "the system gives no random bytes");
        goto out;
    }
    if (opts->node)
        memcpy(card->node, opts->node, strlen(opts->node) + 1);
    else
        sti_start_node(card->node);
    card->n_values = opts->n_values;
    for (uint32_t i = 0; i < opts->n_values; i++) {
        memcpy(card->values[i].name, opts->values[i].name, strlen(opts->values[i].name) + 1);
        memcpy(card->values[i].text, opts->values[i].text, strlen(opts->values[i].text) + 1);
    }
    comm->method->address(comm->link, &card->address, &card->n_address);
    comm->incarnation = card->incarnation;
    rc = sti_card_encode(card, secret, bytes);
    if (rc < 0)
        (void)sti_error_set(err, rc,
                            "what this rank has to tell the others is larger than %u bytes: fewer "
                            "transports make its address shorter",
                            STI_COMM_CARD_MAX);
out:
    sti_mem_free(card);
    return rc;
}

/* The job's key: what nobody knows who has not seen rank 0's card and, where there is
 * one, the secret. */
static void
make_key(struct sti_comm *comm, const struct sti_card *first, const struct hmac_sha256_ctx *secret)
{
    static const unsigned char what[] = {'j', 'o', 'b'};
    struct hmac_sha256_ctx message = *secret;
    unsigned char key[STI_MAC_BYTES];

    hmac_sha256_update(&message, sizeof(what), what);
    hmac_sha256_update(&message, sizeof(first->key), first->key);
    hmac_sha256_digest(&message, sizeof(key), key);
    hmac_sha256_set_key(&comm->key, sizeof(key), key);
}

/* What ranks have in common is found by their names for their machines, in sorted order:
 * of any number of ranks, without comparing each with each. */
struct named {
    const char *name;
    uint32_t rank;
};

static int
compare_named(const void *a, const void *b)
{
    const struct named *left = a, *right = b;
    int order = strcmp(left->name, right->name);

    if (order != 0)
        return order;
    return left->rank < right->rank ? -1 : left->rank > right->rank;
}

static void
number_nodes(struct sti_comm *comm, struct named *named)
{
    /* First each rank gets the lowest rank of its node, then nodes are counted. */
    qsort(named, comm->world, sizeof(*named), compare_named);
    for (uint32_t i = 0, lowest = 0; i < comm->world; i++) {
        if (i == 0 || strcmp(named[i].name, named[i - 1].name) != 0)
            lowest = named[i].rank;
        comm->peers[named[i].rank].node = lowest;
    }
    for (uint32_t rank = 0; rank < comm->world; rank++) {
        uint32_t lowest = comm->peers[rank].node;

        comm->peers[rank].node = lowest == rank ? comm->n_nodes++ : comm->peers[lowest].node;
    }
}

static int
card_error(uint32_t rank, const struct sti_card *card, int rc, stk_error *err)
{
    if (rc == STK_E_VERSION)
        return sti_card_version_error(rank, card->version, err);
    (void)sti_error_set(err, rc,
                        rc == -EACCES ? "rank %u was started with another secret"
                                      : "what was exchanged for rank %u is not a rank's card",
                        rank);
    if (err)
        err->rank = (int)rank;
    return rc;
}

static int
read_cards(struct sti_comm *comm, const struct hmac_sha256_ctx *secret, stk_error *err)
{
    struct sti_card *cards = sti_mem_new(2, sizeof(*cards)); /* rank 0's and another's */
    char(*nodes)[STI_CARD_TEXT_SIZE] = sti_mem_new(comm->world, sizeof(*nodes));
    struct named *named = sti_mem_new(comm->world, sizeof(*named));
    int rc = 0;

    if (!cards || !nodes || !named) {
        rc = sti_error_set(err, -ENOMEM, "no memory for the cards of %u ranks", comm->world);
        goto out;
    }
    for (uint32_t rank = 0; rank < comm->world && rc == 0; rank++) {
        struct sti_card *card = &cards[rank > 0];

        rc = sti_card_decode(card, secret, comm->cards + (uint64_t)rank * STI_COMM_CARD_MAX,
                             STI_COMM_CARD_MAX);
        rc = rc < 0 ? card_error(rank, card, rc, err) : sti_card_check(cards, card, rank, err);
        if (rc < 0)
            break;
        if (rank == 0)
            make_key(comm, card, secret);
        memcpy(nodes[rank], card->node, sizeof(nodes[rank]));
        named[rank] = (struct named){.name = nodes[rank], .rank = rank};
        comm->peers[rank].incarnation = card->incarnation;
        if (rank != comm->rank)
            comm->method->meet(comm->link, rank, card->address, card->n_address);
    }
    if (rc == 0)
        number_nodes(comm, named);
out:
    sti_mem_free(named);
    sti_mem_free(nodes);
    sti_mem_free(cards);
    return rc;
}

int
sti_comm_join(struct sti_comm *comm, const struct sti_comm_opts *opts, stk_error *err)
{
    const char *key = opts->secret ? opts->secret : "";
    uint64_t timeout_ns = opts->start_timeout_ns > 0 ? opts->start_timeout_ns : START_TIMEOUT_NS;
    unsigned char *mine = sti_mem_new(1, STI_COMM_CARD_MAX);
    struct hmac_sha256_ctx secret;

    if (!mine)
        return sti_error_set(err, -ENOMEM, "no memory for this rank's card");
    hmac_sha256_set_key(&secret, strlen(key), (const uint8_t *)key);
    int rc = make_card(comm, opts, &secret, mine, err);
    if (rc > 0) {
        struct sti_start start = {
            .opts = opts,
            .secret = &secret,
            .mine = mine,
            .n_mine = (uint32_t)rc,
            .cards = comm->cards,
            .timeout_ns = timeout_ns,
            .deadline_ns = sti_clock_ns() + timeout_ns,
        };
        rc = sti_start_exchange(&start, err);
    }
    if (rc == 0)
        rc = read_cards(comm, &secret, err);
    sti_mem_free(mine);
    return rc;
}
