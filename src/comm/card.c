/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cards to bytes and back. Layout, little-endian: magic 53 54 4b 44, version (u32), length
 * of all (u32), rank (u32), world (u32), incarnation (u64), key (16 bytes), node (text),
 * n_values (u32) and for each its name and text, address (u32 length, bytes), tag (32
 * bytes). A text is its length (u16) and its bytes, of which none is 0. The version comes
 * first and is judged alone: another one may have any layout behind it.
 */
#include "comm/card.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "comm/wire.h"

#define MAGIC UINT32_C(0x444b5453)
#define HEAD_BYTES 12u

struct writer {
    unsigned char *bytes;
    uint32_t n_bytes;
    uint32_t room;
    bool is_full;
};

static unsigned char *
room_for(struct writer *writer, uint32_t n_bytes)
{
    static unsigned char nowhere[8];

    if (writer->is_full || n_bytes > writer->room - writer->n_bytes) {
        writer->is_full = true;
        return n_bytes <= sizeof(nowhere) ? nowhere : NULL;
    }
    writer->n_bytes += n_bytes;
    return writer->bytes + writer->n_bytes - n_bytes;
}

static void
put_number(struct writer *writer, uint64_t value, uint32_t n_bytes)
{
    unsigned char number[8];

    sti_wire_put(number, value, n_bytes);
    unsigned char *to = room_for(writer, n_bytes);
    if (!writer->is_full)
        memcpy(to, number, n_bytes);
}

static void
put_bytes(struct writer *writer, const void *bytes, uint32_t n_bytes)
{
    unsigned char *to = room_for(writer, n_bytes);

    if (!writer->is_full && n_bytes > 0)
        memcpy(to, bytes, n_bytes);
}

static void
put_text(struct writer *writer, const char *text)
{
    uint32_t n_chars = (uint32_t)strlen(text);

    put_number(writer, n_chars, 2);
    put_bytes(writer, text, n_chars);
}

int
sti_card_encode(const struct sti_card *card, const struct hmac_sha256_ctx *secret,
                unsigned char *bytes)
{
    struct writer writer = {.bytes = bytes, .room = STI_COMM_CARD_MAX - STI_MAC_BYTES};

    put_number(&writer, MAGIC, 4);
    put_number(&writer, card->version, 4);
    put_number(&writer, 0, 4); /* the length, when it is known */
    put_number(&writer, card->rank, 4);
    put_number(&writer, card->world, 4);
    put_number(&writer, card->incarnation, 8);
    put_bytes(&writer, card->key, sizeof(card->key));
    put_text(&writer, card->node);
    put_number(&writer, card->n_values, 4);
    for (uint32_t i = 0; i < card->n_values; i++) {
        put_text(&writer, card->values[i].name);
        put_text(&writer, card->values[i].text);
    }
    put_number(&writer, card->n_address, 4);
    put_bytes(&writer, card->address, card->n_address);
    if (writer.is_full)
        return -EMSGSIZE;
    sti_wire_put(bytes + 8, writer.n_bytes + STI_MAC_BYTES, 4);
    sti_mac(secret, bytes, writer.n_bytes, STI_MAC_BYTES, bytes + writer.n_bytes);
    return (int)(writer.n_bytes + STI_MAC_BYTES);
}

struct reader {
    const unsigned char *bytes;
    size_t n_bytes;
    bool is_bad;
};

static const unsigned char *
get_bytes(struct reader *reader, size_t n_bytes)
{
    const unsigned char *bytes = reader->bytes;

    if (reader->is_bad || n_bytes > reader->n_bytes) {
        reader->is_bad = true;
        return NULL;
    }
    reader->bytes += n_bytes;
    reader->n_bytes -= n_bytes;
    return bytes;
}

static uint64_t
get_number(struct reader *reader, uint32_t n_bytes)
{
    const unsigned char *bytes = get_bytes(reader, n_bytes);

    return bytes ? sti_wire_get(bytes, n_bytes) : 0;
}

static void
get_text(struct reader *reader, char *text, uint32_t size)
{
    size_t n_chars = (size_t)get_number(reader, 2);
    const unsigned char *bytes = get_bytes(reader, n_chars);

    text[0] = '\0';
    if (!bytes || n_chars >= size || memchr(bytes, '\0', n_chars)) {
        reader->is_bad = true;
        return;
    }
    memcpy(text, bytes, n_chars);
    text[n_chars] = '\0';
}

static int
get_fields(struct reader *reader, struct sti_card *card)
{
    const unsigned char *key;

    card->rank = (uint32_t)get_number(reader, 4);
    card->world = (uint32_t)get_number(reader, 4);
    card->incarnation = get_number(reader, 8);
    key = get_bytes(reader, sizeof(card->key));
    if (key)
        memcpy(card->key, key, sizeof(card->key));
    get_text(reader, card->node, sizeof(card->node));
    card->n_values = (uint32_t)get_number(reader, 4);
    if (card->n_values > STI_COMM_VALUES_MAX)
        return -EBADMSG;
    for (uint32_t i = 0; i < card->n_values; i++) {
        get_text(reader, card->values[i].name, sizeof(card->values[i].name));
        get_text(reader, card->values[i].text, sizeof(card->values[i].text));
    }
    card->n_address = (uint32_t)get_number(reader, 4);
    card->address = get_bytes(reader, card->n_address);
    if (reader->is_bad || reader->n_bytes != 0)
        return -EBADMSG;
    if (card->world == 0 || card->world > STI_COMM_RANKS_MAX || card->rank >= card->world)
        return -EBADMSG;
    return 0;
}

int
sti_card_decode(struct sti_card *ret_card, const struct hmac_sha256_ctx *secret, const void *bytes,
                size_t n_bytes)
{
    const unsigned char *from = bytes;

    if (n_bytes < HEAD_BYTES || sti_wire_get(from, 4) != MAGIC)
        return -EBADMSG;
    *ret_card = (struct sti_card){.version = (uint32_t)sti_wire_get(from + 4, 4)};
    if (ret_card->version != STI_CARD_VERSION)
        return STK_E_VERSION;
    uint64_t length = sti_wire_get(from + 8, 4);
    if (length > n_bytes || length > STI_COMM_CARD_MAX || length < HEAD_BYTES + STI_MAC_BYTES)
        return -EBADMSG;
    if (!sti_mac_is(secret, from, length - STI_MAC_BYTES, STI_MAC_BYTES,
                    from + length - STI_MAC_BYTES))
        return -EACCES;
    struct reader reader = {.bytes = from + HEAD_BYTES,
                            .n_bytes = length - HEAD_BYTES - STI_MAC_BYTES};
    return get_fields(&reader, ret_card);
}

int
sti_card_version_error(uint32_t rank, uint32_t version, stk_error *err)
{
    int rc = sti_error_set(err, STK_E_VERSION,
                           "rank %u speaks version %u of the ranks' protocol, this one version %u: "
                           "all ranks must run the same Stoker",
                           rank, version, STI_CARD_VERSION);

    if (err)
        err->rank = (int)rank;
    return rc;
}

static int
differ(uint32_t rank, const char *name, const char *theirs, const char *first, stk_error *err)
{
    int rc = sti_error_set(err, STK_E_MISMATCH,
                           "ranks disagree: %s is %s on rank %u and %s on rank 0; start all ranks "
                           "with the same options",
                           name, theirs, rank, first);

    if (err)
        err->rank = (int)rank;
    return rc;
}

static int
differ_in_number(uint32_t rank, const char *name, const uint32_t numbers[2], stk_error *err)
{
    char texts[2][16] = {"", ""};

    for (uint32_t i = 0; i < 2; i++)
        (void)snprintf(texts[i], sizeof(texts[i]), "%u", numbers[i]);
    return differ(rank, name, texts[0], texts[1], err);
}

int
sti_card_check(const struct sti_card *first, const struct sti_card *card, uint32_t rank,
               stk_error *err)
{
    if (card->version != first->version)
        return sti_card_version_error(rank, card->version, err);
    if (card->rank != rank)
        return differ_in_number(rank, "the number of this rank",
                                (const uint32_t[2]){card->rank, rank}, err);
    if (card->world != first->world)
        return differ_in_number(rank, "the number of ranks",
                                (const uint32_t[2]){card->world, first->world}, err);
    if (card->n_values != first->n_values)
        return differ_in_number(rank, "the number of values that are compared",
                                (const uint32_t[2]){card->n_values, first->n_values}, err);
    for (uint32_t i = 0; i < card->n_values; i++) {
        if (strcmp(card->values[i].name, first->values[i].name) != 0)
            return differ(rank, "the name of a value that is compared", card->values[i].name,
                          first->values[i].name, err);
        if (strcmp(card->values[i].text, first->values[i].text) != 0)
            return differ(rank, card->values[i].name, card->values[i].text, first->values[i].text,
                          err);
    }
    return 0;
}
