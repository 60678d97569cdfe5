/* challenge.c - fuzzes WWW-Authenticate and token servers' answers: a token has nothing in it that
 * a field must not have. */
#include "server/fetch/bearer.h"
#include "server/fetch/challenge.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static struct origin *o;
    struct origin_settings set = {.url = "https://registry.example/"};
    struct arena a = {0};
    struct challenge c;
    struct slice token;
    uint64_t good_s;

    if (o == NULL) {
        CHECK(origin_new("hub", &set, &o, NULL) == 0);
    }
    if (challenge_parse(slice_of(p, n), &a, &c)) {
        CHECK(c.realm.n != 0);
        CHECK(bearer_admits(o, c.realm, NULL) != 0 || slice_starts(c.realm, SLICE("https://")) ||
              slice_find(c.realm, ':') == 5);
    }
    if (bearer_answer(slice_of(p, n), &a, &token, &good_s, NULL) == 0) {
        CHECK(token.n != 0 && good_s >= 1 && good_s <= 86400);
        for (size_t i = 0; i < token.n; i++) {
            CHECK(token.p[i] > ' ' && token.p[i] < 0x7f);
        }
    }
    arena_fini(&a);
    return 0;
}
