/* SPDX-License-Identifier: Apache-2.0 */
/* Heads of messages to bytes and back. Nothing of a head is believed before its tag. */
#include "comm/wire.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#define MAGIC UINT32_C(0x4d4b5453)

void
sti_wire_put(unsigned char *bytes, uint64_t value, uint32_t n_bytes)
{
    for (uint32_t i = 0; i < n_bytes; i++)
        bytes[i] = (unsigned char)(value >> (8 * i));
}

uint64_t
sti_wire_get(const unsigned char *bytes, uint32_t n_bytes)
{
    uint64_t value = 0;

    for (uint32_t i = 0; i < n_bytes; i++)
        value |= (uint64_t)bytes[i] << (8 * i);
    return value;
}

uint32_t
sti_wire_encode(const struct sti_wire *wire, const struct hmac_sha256_ctx *key,
                unsigned char *bytes)
{
    uint32_t n_bytes = STI_WIRE_FIXED + wire->n_small;

    assert(wire->n_small <= STI_COMM_SMALL_MAX);
    sti_wire_put(bytes, MAGIC, 4);
    sti_wire_put(bytes + 4, STI_WIRE_VERSION, 2);
    sti_wire_put(bytes + 6, wire->kind, 1);
    sti_wire_put(bytes + 7, wire->flags, 1);
    sti_wire_put(bytes + 8, wire->from, 4);
    sti_wire_put(bytes + 12, wire->to, 4);
    sti_wire_put(bytes + 16, wire->incarnation, 8);
    sti_wire_put(bytes + 24, wire->id, 8);
    sti_wire_put(bytes + 32, wire->n_bytes, 8);
    sti_wire_put(bytes + 40, (uint32_t)wire->code, 4);
    sti_wire_put(bytes + 44, wire->crc, 4);
    sti_wire_put(bytes + 48, wire->verb, 2);
    sti_wire_put(bytes + 50, wire->n_small, 2);
    sti_wire_put(bytes + 52, 0, 4);
    if (wire->n_small > 0)
        memcpy(bytes + STI_WIRE_FIXED, wire->small, wire->n_small);
    sti_mac(key, bytes, n_bytes, STI_WIRE_TAG, bytes + n_bytes);
    return n_bytes + STI_WIRE_TAG;
}

static int
check_fields(const struct sti_wire *wire, const unsigned char *from, size_t n_bytes)
{
    if (wire->kind < STI_WIRE_REQUEST || wire->kind >= STI_WIRE_KINDS)
        return -EBADMSG;
    if (wire->flags & ~STI_WIRE_FLAGS || sti_wire_get(from + 52, 4) != 0)
        return -EBADMSG;
    if (n_bytes != STI_WIRE_FIXED + wire->n_small + STI_WIRE_TAG)
        return -EBADMSG;
    if (wire->n_bytes > STI_COMM_BODY_MAX)
        return -EBADMSG;
    if (wire->from >= STI_COMM_RANKS_MAX || wire->to >= STI_COMM_RANKS_MAX)
        return -EBADMSG;
    return 0;
}

size_t
sti_wire_first(const void *bytes, size_t n_bytes)
{
    const unsigned char *from = bytes;

    if (n_bytes < STI_WIRE_FIXED + STI_WIRE_TAG)
        return 0;
    size_t length = STI_WIRE_FIXED + (size_t)sti_wire_get(from + 50, 2) + STI_WIRE_TAG;
    return length <= n_bytes ? length : 0;
}

int
sti_wire_decode(struct sti_wire *ret_wire, const struct hmac_sha256_ctx *key, const void *bytes,
                size_t n_bytes)
{
    const unsigned char *from = bytes;

    if (n_bytes < STI_WIRE_FIXED + STI_WIRE_TAG || n_bytes > STI_HEAD_MAX)
        return -EBADMSG;
    if (sti_wire_get(from, 4) != MAGIC)
        return -EBADMSG;
    if (sti_wire_get(from + 4, 2) != STI_WIRE_VERSION)
        return STK_E_VERSION;
    if (!sti_mac_is(key, from, n_bytes - STI_WIRE_TAG, STI_WIRE_TAG, from + n_bytes - STI_WIRE_TAG))
        return -EACCES;

    const struct sti_wire wire = {
        .kind = (enum sti_wire_kind)from[6],
        .flags = from[7],
        .from = (uint32_t)sti_wire_get(from + 8, 4),
        .to = (uint32_t)sti_wire_get(from + 12, 4),
        .incarnation = sti_wire_get(from + 16, 8),
        .id = sti_wire_get(from + 24, 8),
        .n_bytes = sti_wire_get(from + 32, 8),
        .code = (int32_t)(uint32_t)sti_wire_get(from + 40, 4),
        .crc = (uint32_t)sti_wire_get(from + 44, 4),
        .verb = (uint32_t)sti_wire_get(from + 48, 2),
        .n_small = (uint32_t)sti_wire_get(from + 50, 2),
        .small = from + STI_WIRE_FIXED,
    };
    int rc = check_fields(&wire, from, n_bytes);

    if (rc == 0)
        *ret_wire = wire;
    return rc;
}
