#include "tests/support/lies.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/test.h"

#define TYPES 90u // more than there are of messages

static uint32_t another(rt_random *random, uint32_t word)
{
    const uint32_t words[] = {word + 1,   word - 1,   0,
                              UINT32_MAX, word + 256, word ^ 1u << rt_random_below(random, 32)};
    return words[rt_random_below(random, RT_COUNT_OF(words))];
}

static void resize(rt_message *message, uint64_t payload)
{
    rt_message made;
    const rt_wire_header header = *rt_message_header(message);
    assert_int_equal(rt_message_create(&made, (rt_message_type)header.type, header.sender,
                                       header.iteration, header.count, payload),
                     RT_OK);
    memset(rt_message_payload(&made), 0, payload);
    memcpy(rt_message_payload(&made), rt_message_payload(message),
           rt_min_u64(payload, header.payload_bytes));
    rt_message_header(&made)->epoch = header.epoch;
    rt_message_release(message);
    *message = made;
}

// A word of the payload, mostly of its beginning, where no floats are.
static void change_word(rt_random *random, rt_message *message, char what[LIES_TEXT_BYTES])
{
    const uint64_t words = rt_message_header(message)->payload_bytes / sizeof(uint32_t);
    uint32_t word;
    if (words == 0)
        return;
    const uint64_t most = rt_random_below(random, 4) ? rt_min_u64(words, 6) : words;
    const uint32_t at = rt_random_below(random, (uint32_t)most);
    uint8_t *place = rt_message_payload(message) + at * sizeof word;
    memcpy(&word, place, sizeof word);
    word = another(random, word);
    memcpy(place, &word, sizeof word);
    snprintf(what, LIES_TEXT_BYTES, "word %" PRIu32 " is %" PRIx32, at, word);
}

// The record in front stands in the next one's place, too.
static void repeat_record(rt_message *message)
{
    const rt_wire_header *header = rt_message_header(message);
    const uint64_t size = header->count ? header->payload_bytes / header->count : 0;
    uint8_t *payload = rt_message_payload(message);
    if (header->count > 1)
        memcpy(payload + size, payload, size);
}

void lies_tell(rt_random *random, uint32_t rank_count, rt_message *message, uint32_t *peer,
               char what[LIES_TEXT_BYTES])
{
    rt_wire_header *header = rt_message_header(message);
    const uint64_t payload = header->payload_bytes;
    const uint32_t role = RT_ROLE_COORDINATOR + rt_random_below(random, RT_ROLES);
    *what = '\0';
    switch (rt_random_below(random, 12)) {
    case 0:
        header->count = another(random, header->count);
        snprintf(what, LIES_TEXT_BYTES, "count %" PRIu32, header->count);
        break;
    case 1:
        resize(message, payload >= 4 ? payload - 4 : 0);
        snprintf(what, LIES_TEXT_BYTES, "short");
        break;
    case 2:
        resize(message, payload + 4 * (1 + rt_random_below(random, 8)));
        snprintf(what, LIES_TEXT_BYTES, "long");
        break;
    case 3:
        header->iteration += rt_random_below(random, 9);
        header->iteration -= 4;
        snprintf(what, LIES_TEXT_BYTES, "iteration %" PRIi64, (int64_t)header->iteration);
        break;
    case 4:
        *peer = rt_peer(role, rt_random_below(random, rank_count));
        header->sender = *peer;
        snprintf(what, LIES_TEXT_BYTES, "sender %" PRIx32, *peer);
        break;
    case 5:
        header->type = (uint16_t)rt_random_below(random, TYPES);
        snprintf(what, LIES_TEXT_BYTES, "type %" PRIu32, (uint32_t)header->type);
        break;
    case 6:
        header->epoch++;
        snprintf(what, LIES_TEXT_BYTES, "epoch");
        break;
    case 7:
        repeat_record(message);
        snprintf(what, LIES_TEXT_BYTES, "repeated");
        break;
    default:
        change_word(random, message, what);
        break;
    }
}
