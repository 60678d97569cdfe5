#include "server/http/hpack.h"

#include <stdlib.h>

enum { STATIC_ENTRIES = 61, ENTRY_OVERHEAD = 32 };

struct hpack_entry {
    uint32_t hash;
    uint32_t older; /* number of the one before it in its slot */
    uint32_t name_n, value_n;
    char bytes[]; /* name, value */
};

/* RFC 7541 Appendix A: names that answers have. */
static const struct {
    uint8_t index, n;
    const char *name;
} known[] = {
    {21, 3, "age"},
    {60, 3, "via"},
    {33, 4, "date"},
    {34, 4, "etag"},
    {45, 4, "link"},
    {59, 4, "vary"},
    {22, 5, "allow"},
    {54, 6, "server"},
    {36, 7, "expires"},
    {46, 8, "location"},
    {55, 10, "set-cookie"},
    {53, 11, "retry-after"},
    {31, 12, "content-type"},
    {18, 13, "accept-ranges"},
    {24, 13, "cache-control"},
    {30, 13, "content-range"},
    {44, 13, "last-modified"},
    {28, 14, "content-length"},
    {26, 16, "content-encoding"},
    {27, 16, "content-language"},
    {29, 16, "content-location"},
    {61, 16, "www-authenticate"},
    {25, 19, "content-disposition"},
    {56, 25, "strict-transport-security"},
    {20, 27, "access-control-allow-origin"},
};

void hpack_init(struct hpack *h)
{
    *h = (struct hpack){.max_bytes = HPACK_TABLE_BYTES, .least_bytes = HPACK_TABLE_BYTES};
}

static void drop_oldest(struct hpack *h)
{
    struct hpack_entry **at = &h->ring[(h->last - h->count + 1) % HPACK_RING];

    h->used_bytes -= ENTRY_OVERHEAD + (*at)->name_n + (*at)->value_n;
    h->count--;
    free(*at);
    *at = NULL;
}

static void make_room_in_hpack(struct hpack *h, uint32_t bytes)
{
    while (h->count > 0 && h->used_bytes + bytes > h->max_bytes) {
        drop_oldest(h);
    }
}

void hpack_fini(struct hpack *h)
{
    while (h->count > 0) {
        drop_oldest(h);
    }
}

void hpack_limit(struct hpack *h, uint32_t bytes)
{
    bytes = bytes < HPACK_TABLE_BYTES ? bytes : HPACK_TABLE_BYTES;
    if (bytes == h->max_bytes) {
        return;
    }
    h->max_bytes = bytes;
    h->least_bytes = bytes < h->least_bytes ? bytes : h->least_bytes;
    h->tell = true;
    make_room_in_hpack(h, 0);
}

/* --- writing ---------------------------------------------------------------------------------- */

/* 5.1: n in what is left of the first byte, then seven bits at a time. */
static char *put_int(char *to, unsigned first, unsigned bits, size_t n)
{
    size_t most = (1u << bits) - 1;

    if (n < most) {
        *to++ = (char)(first | n);
        return to;
    }
    *to++ = (char)(first | most);
    for (n -= most; n >= 128; n >>= 7) {
        *to++ = (char)(128 | (n & 127));
    }
    *to++ = (char)n;
    return to;
}

static char *put_string(char *to, struct slice s)
{
    to = put_int(to, 0, 7, s.n);
    if (s.n != 0) {
        memcpy(to, s.p, s.n);
    }
    return to + s.n;
}

char *hpack_begin(struct hpack *h, char *to)
{
    if (h->tell) { /* 4.2: first the smallest, or the peer would keep what we have dropped */
        if (h->least_bytes < h->max_bytes) {
            to = put_int(to, 0x20, 5, h->least_bytes);
        }
        to = put_int(to, 0x20, 5, h->max_bytes);
        h->least_bytes = h->max_bytes;
        h->tell = false;
    }
    return to;
}

char *hpack_status(char *to, int status)
{
    static const short whole[] = {200, 204, 206, 304, 400, 404, 500};

    for (unsigned i = 0; i < ARRAY_LEN(whole); i++) {
        if (whole[i] == status) {
            *to++ = (char)(0x80 | (8 + i));
            return to;
        }
    }
    *to++ = 8;
    *to++ = 3;
    *to++ = (char)('0' + status / 100 % 10);
    *to++ = (char)('0' + status / 10 % 10);
    *to++ = (char)('0' + status % 10);
    return to;
}

/* --- the table -------------------------------------------------------------------------------- */

static uint64_t load_hpack_word(const char *p, size_t n)
{
    uint64_t v = 0;

    memcpy(&v, p, n);
    return v;
}

/* Beginning, middle and end tell values of one field apart; what collides is compared. */
static uint64_t mix(struct slice s)
{
    uint64_t v = s.n;

    if (s.n >= 8) {
        v += load_hpack_word(s.p, 8) * 0x9e3779b97f4a7c15u;
        v = (v ^ v >> 29) + load_hpack_word(s.p + s.n / 2 - 4, 8) * 0xbf58476d1ce4e5b9u;
        v = (v ^ v >> 32) + load_hpack_word(s.p + s.n - 8, 8) * 0x94d049bb133111ebu;
    } else {
        for (size_t i = 0; i < s.n; i++) {
            v = v << 8 ^ (unsigned char)s.p[i];
        }
        v *= 0x9e3779b97f4a7c15u;
    }
    return v ^ v >> 31;
}

static uint32_t hash_of(uint64_t name, struct slice value)
{
    return (uint32_t)((mix(value) * 31 + name) * 0x9e3779b97f4a7c15u >> 32);
}

static struct hpack_entry *entry_at(const struct hpack *h, uint32_t number)
{
    return number != 0 && h->last - number < h->count ? h->ring[number % HPACK_RING] : NULL;
}

static bool is_entry_name(const struct hpack_entry *e, struct slice name)
{
    return e->name_n == name.n && memcmp(e->bytes, name.p, name.n) == 0;
}

/* 0: not there. Else its index, as the peer counts. */
static size_t find_field(const struct hpack *h, uint32_t hash, struct slice name,
                         struct slice value)
{
    uint32_t number = h->by_field[hash % HPACK_FIELD_SLOTS];
    const struct hpack_entry *e;

    for (; (e = entry_at(h, number)) != NULL; number = e->older) {
        if (e->hash == hash && e->value_n == value.n && is_entry_name(e, name) &&
            (value.n == 0 || memcmp(e->bytes + e->name_n, value.p, value.n) == 0)) {
            return STATIC_ENTRIES + 1 + (h->last - number);
        }
    }
    return 0;
}

static size_t find_name(const struct hpack *h, uint64_t hash, struct slice name)
{
    uint32_t number = h->by_name[hash % HPACK_NAME_SLOTS];
    const struct hpack_entry *e;

    for (size_t i = 0; i < ARRAY_LEN(known) && known[i].n <= name.n; i++) {
        if (known[i].n == name.n && memcmp(known[i].name, name.p, name.n) == 0) {
            return known[i].index;
        }
    }
    e = entry_at(h, number);
    return e != NULL && is_entry_name(e, name) ? STATIC_ENTRIES + 1 + (h->last - number) : 0;
}

static void insert(struct hpack *h, uint64_t name_hash, uint32_t hash, struct slice name,
                   struct slice value)
{
    struct hpack_entry *e = mem_new(sizeof *e + name.n + value.n);
    uint32_t bytes = ENTRY_OVERHEAD + (uint32_t)(name.n + value.n);

    make_room_in_hpack(h, bytes);
    h->last++;
    h->count++;
    h->used_bytes += bytes;
    e->hash = hash;
    e->older = h->by_field[hash % HPACK_FIELD_SLOTS];
    e->name_n = (uint32_t)name.n;
    e->value_n = (uint32_t)value.n;
    memcpy(e->bytes, name.p, name.n);
    if (value.n != 0) {
        memcpy(e->bytes + name.n, value.p, value.n);
    }
    h->ring[h->last % HPACK_RING] = e;
    h->by_field[hash % HPACK_FIELD_SLOTS] = h->last;
    h->by_name[name_hash % HPACK_NAME_SLOTS] = h->last;
}

static bool seen_before(struct hpack *h, uint32_t hash)
{
    uint16_t *slot = &h->seen[hash % HPACK_SEEN_SLOTS];
    uint16_t mark = (uint16_t)(hash >> 16 | 1);
    bool before = *slot == mark;

    *slot = mark;
    return before;
}

char *hpack_field(struct hpack *h, char *to, struct slice name, struct slice value, bool once)
{
    uint64_t name_hash = mix(name);
    uint32_t hash = hash_of(name_hash, value);
    size_t index = once ? 0 : find_field(h, hash, name, value);
    bool keep;

    if (index != 0) {
        return put_int(to, 0x80, 7, index);
    }
    h->spelt++;
    index = find_name(h, name_hash, name);
    keep = (index == 0 || (!once && seen_before(h, hash))) &&
           ENTRY_OVERHEAD + name.n + value.n <= h->max_bytes / 4;
    to = keep ? put_int(to, 0x40, 6, index) : put_int(to, 0, 4, index);
    if (index == 0) {
        to = put_string(to, name);
    }
    to = put_string(to, value);
    if (keep) {
        insert(h, name_hash, hash, name, value);
    }
    return to;
}
