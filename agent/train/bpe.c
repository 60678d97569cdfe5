#include "agent/train/bpe.h"

#include <stdlib.h>
#include <sys/random.h>
#include <xxhash.h>

#include "common/base/arena.h"

enum {
    NO_ID = -1,
    REMEMBERED_BYTES = 22, /* with these an entry is one line of the processor's cache */
    REMEMBERED_TOKENS = 10,
    REMEMBERED_WORDS = 1 << 15,
    LONG_WORD = 1 << 16, /* memory for longer ones is not kept */
};

static const uint32_t NEVER = UINT32_MAX; /* the rank of a pair that is not merged */

struct merge {
    uint64_t pair; /* left << 32 | right */
    uint32_t rank; /* NEVER: an empty slot */
    uint32_t into;
};

struct bpe {
    uint32_t vocab;
    bool whole_words;
    struct arena arena;
    struct slice *token; /* by id */
    int64_t byte_id[256];
    uint64_t seed;       /* so that no file can be made whose entries collide */
    struct merge *merge; /* open addressing, at most half full */
    uint64_t merge_mask;
    uint64_t *by_rank; /* pairs */
    uint32_t merges;
    uint32_t room;
    uint32_t *word; /* open addressing: ids + 1 by bytes; only for whole_words */
    uint64_t word_mask;
};

/* --- the tables ------------------------------------------------------------------------------- */

/* A power of two that leaves half of the slots empty. */
static uint64_t slots_for(uint64_t n)
{
    uint64_t slots = 16;

    while (slots < 2 * n) {
        slots *= 2;
    }
    return slots;
}

struct bpe *bpe_new(uint32_t vocab, uint32_t merges, bool whole_words)
{
    struct bpe *b = NEW(struct bpe);
    uint64_t slots = slots_for(merges);

    CHECK(vocab <= BPE_MAX_VOCAB);
    b->vocab = vocab;
    b->whole_words = whole_words;
    b->token = mem_array(vocab + 1, sizeof *b->token);
    b->merge = mem_array(slots, sizeof *b->merge);
    b->merge_mask = slots - 1;
    for (uint64_t i = 0; i < slots; i++) {
        b->merge[i].rank = NEVER;
    }
    b->by_rank = mem_array(merges + 1, sizeof *b->by_rank);
    b->room = merges;
    for (int i = 0; i < 256; i++) {
        b->byte_id[i] = NO_ID;
    }
    if (whole_words) {
        b->word_mask = slots_for(vocab) - 1;
        b->word = mem_array(b->word_mask + 1, sizeof *b->word);
    }
    if (getrandom(&b->seed, sizeof b->seed, 0) != sizeof b->seed) {
        b->seed = (uint64_t)(uintptr_t)b;
    }
    return b;
}

void bpe_free(struct bpe **bp)
{
    struct bpe *b = *bp;

    if (b != NULL) {
        *bp = NULL;
        arena_fini(&b->arena);
        free(b->token);
        free(b->merge);
        free(b->by_rank);
        free(b->word);
        free(b);
    }
}

static uint32_t *find_word(const struct bpe *b, struct slice bytes)
{
    uint64_t at = XXH3_64bits_withSeed(bytes.p, bytes.n, b->seed) & b->word_mask;

    while (b->word[at] != 0 && !slice_eq(b->token[b->word[at] - 1], bytes)) {
        at = (at + 1) & b->word_mask;
    }
    return &b->word[at];
}

void bpe_token(struct bpe *b, uint32_t id, struct slice bytes, bool joins)
{
    CHECK(id < b->vocab && bytes.n > 0);
    b->token[id] = arena_copy(&b->arena, bytes);
    if (joins && bytes.n == 1) {
        b->byte_id[(uint8_t)bytes.p[0]] = id;
    }
    if (joins && b->whole_words) {
        *find_word(b, bytes) = id + 1;
    }
}

/* The pair's slot, or the empty one where it would stand. */
static struct merge *find_merge(const struct bpe *b, uint64_t pair)
{
    uint64_t at = XXH3_64bits_withSeed(&pair, sizeof pair, b->seed) & b->merge_mask;

    while (b->merge[at].rank != NEVER && b->merge[at].pair != pair) {
        at = (at + 1) & b->merge_mask;
    }
    return &b->merge[at];
}

static uint64_t pair_of(uint32_t left, uint32_t right)
{
    return (uint64_t)left << 32 | right;
}

void bpe_merge(struct bpe *b, uint32_t left, uint32_t right, uint32_t into)
{
    uint64_t pair = pair_of(left, right);

    CHECK(b->merges < b->room && left < b->vocab && right < b->vocab && into < b->vocab);
    *find_merge(b, pair) = (struct merge){pair, b->merges, into};
    b->by_rank[b->merges++] = pair;
}

int bpe_check(const struct bpe *b, struct err *e)
{
    for (int i = 0; i < 256; i++) {
        if (b->byte_id[i] == NO_ID) {
            return err_set(e, E_UNSUPPORTED, "the vocabulary has no token for the byte 0x%02x", i);
        }
    }
    return 0;
}

uint32_t bpe_vocab(const struct bpe *b)
{
    return b->vocab;
}

struct slice bpe_bytes(const struct bpe *b, uint32_t id)
{
    return id < b->vocab ? b->token[id] : SLICE_NONE;
}

bool bpe_rank(const struct bpe *b, uint32_t rank, uint32_t pair[2])
{
    if (rank >= b->merges) {
        return false;
    }
    pair[0] = (uint32_t)(b->by_rank[rank] >> 32);
    pair[1] = (uint32_t)b->by_rank[rank];
    return true;
}

/* --- a word ----------------------------------------------------------------------------------- */

struct symbol { /* what is joined so far, from one place of the word to the next symbol's */
    uint32_t id;
    uint32_t rank; /* of the pair with the next: what the heap's entries are held against */
    uint32_t prev; /* places; word.n is none */
    uint32_t next;
};

struct remembered {
    uint8_t bytes; /* 0: none */
    uint8_t tokens;
    char word[REMEMBERED_BYTES];
    uint32_t token[REMEMBERED_TOKENS];
};

struct bpe_coder {
    const struct bpe *b;
    struct symbol *symbol;
    uint64_t *heap; /* rank << 32 | place, the least first; entries out of date are passed over */
    size_t heaped;
    size_t room; /* bytes of a word that fit */
    struct remembered *remembered;
};

struct bpe_coder *bpe_coder_open(const struct bpe *b)
{
    struct bpe_coder *c = NEW(struct bpe_coder);

    c->b = b;
    c->remembered = aligned_alloc(64, REMEMBERED_WORDS * sizeof *c->remembered);
    CHECK(c->remembered != NULL);
    memset(c->remembered, 0, REMEMBERED_WORDS * sizeof *c->remembered);
    return c;
}

static void drop_desk(struct bpe_coder *c)
{
    free(c->symbol);
    free(c->heap);
    c->symbol = NULL;
    c->heap = NULL;
    c->room = 0;
}

void bpe_coder_close(struct bpe_coder **cp)
{
    struct bpe_coder *c = *cp;

    if (c != NULL) {
        *cp = NULL;
        drop_desk(c);
        free(c->remembered);
        free(c);
    }
}

static void sink(uint64_t *heap, size_t n, size_t at)
{
    uint64_t entry = heap[at];

    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        child += child + 1 < n && heap[child + 1] < heap[child];
        if (entry <= heap[child]) {
            break;
        }
        heap[at] = heap[child];
    }
    heap[at] = entry;
}

static void push_bpe_heap(struct bpe_coder *c, uint64_t entry)
{
    size_t at = c->heaped++;

    for (; at > 0 && entry < c->heap[(at - 1) / 2]; at = (at - 1) / 2) {
        c->heap[at] = c->heap[(at - 1) / 2];
    }
    c->heap[at] = entry;
}

static uint64_t pop(struct bpe_coder *c)
{
    uint64_t top = c->heap[0];

    c->heap[0] = c->heap[--c->heaped];
    if (c->heaped > 1) {
        sink(c->heap, c->heaped, 0);
    }
    return top;
}

/* Looks the pair of `at` and its next up; it is in the heap as soon as it is merged at all. */
static bool pair_up(struct bpe_coder *c, uint32_t at, uint32_t end)
{
    struct symbol *s = &c->symbol[at];

    s->rank =
        s->next == end ? NEVER : find_merge(c->b, pair_of(s->id, c->symbol[s->next].id))->rank;
    return s->rank != NEVER;
}

static uint64_t bpe_heap_entry(const struct bpe_coder *c, uint32_t at)
{
    return (uint64_t)c->symbol[at].rank << 32 | at;
}

static void load_bpe_word(struct bpe_coder *c, struct slice word)
{
    uint32_t end = (uint32_t)word.n;

    if (word.n > c->room) {
        drop_desk(c);
        c->room = word.n < 256 ? 256 : word.n;
        c->symbol = mem_array(c->room, sizeof *c->symbol);
        /* A merge takes one entry out and puts at most two in: never more than pairs at the start
         * plus merges. */
        c->heap = mem_array(c->room, 2 * sizeof *c->heap);
    }
    for (uint32_t i = 0; i < end; i++) {
        c->symbol[i].id = (uint32_t)c->b->byte_id[(uint8_t)word.p[i]];
        c->symbol[i].prev = i == 0 ? end : i - 1;
        c->symbol[i].next = i + 1;
    }
    c->heaped = 0;
    for (uint32_t i = 0; i < end; i++) {
        if (pair_up(c, i, end)) {
            c->heap[c->heaped++] = bpe_heap_entry(c, i);
        }
    }
    for (size_t i = c->heaped / 2; i-- > 0;) {
        sink(c->heap, c->heaped, i);
    }
}

static void join_bpe_pair(struct bpe_coder *c, uint32_t at, uint32_t end)
{
    struct symbol *s = &c->symbol[at];
    struct symbol *gone = &c->symbol[s->next];

    s->id = find_merge(c->b, pair_of(s->id, gone->id))->into;
    s->next = gone->next;
    gone->rank = NEVER;
    if (s->next != end) {
        c->symbol[s->next].prev = at;
    }
    if (pair_up(c, at, end)) {
        push_bpe_heap(c, bpe_heap_entry(c, at));
    }
    if (s->prev != end && pair_up(c, s->prev, end)) {
        push_bpe_heap(c, bpe_heap_entry(c, s->prev));
    }
}

static size_t merge_word(struct bpe_coder *c, struct slice word, uint32_t *out)
{
    uint32_t end = (uint32_t)word.n;
    size_t n = 0;

    CHECK(word.n <= BPE_MAX_WORD);
    load_bpe_word(c, word);
    while (c->heaped > 0) {
        uint64_t top = pop(c);

        /* A rank names its pair, so an entry whose rank still stands at its place is still true. */
        if (c->symbol[(uint32_t)top].rank == top >> 32) {
            join_bpe_pair(c, (uint32_t)top, end);
        }
    }
    for (uint32_t at = 0; at != end; at = c->symbol[at].next) {
        out[n++] = c->symbol[at].id;
    }
    if (c->room > LONG_WORD) {
        drop_desk(c);
    }
    return n;
}

static size_t make_word(struct bpe_coder *c, struct slice word, uint32_t *out)
{
    uint32_t whole = c->b->whole_words ? *find_word(c->b, word) : 0;

    if (whole != 0) {
        out[0] = whole - 1;
        return 1;
    }
    return merge_word(c, word, out);
}

size_t bpe_word(struct bpe_coder *c, struct slice word, uint32_t *out)
{
    struct remembered *r;
    size_t n;

    if (word.n > REMEMBERED_BYTES) {
        return make_word(c, word, out);
    }
    r = &c->remembered[XXH3_64bits(word.p, word.n) % REMEMBERED_WORDS];
    if (r->bytes == word.n && memcmp(r->word, word.p, word.n) == 0) {
        memcpy(out, r->token, r->tokens * sizeof *out);
        return r->tokens;
    }
    n = make_word(c, word, out);
    if (n <= REMEMBERED_TOKENS) {
        r->bytes = (uint8_t)word.n;
        r->tokens = (uint8_t)n;
        memcpy(r->word, word.p, word.n);
        memcpy(r->token, out, n * sizeof *out);
    }
    return n;
}
