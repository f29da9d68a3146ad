/* A chat template: hostile Jinja. Reading it ends, inside of its memory; a template that is not
   known gets a reason; one that is known writes the first probe as the row does. */
#include "fuzz_vocab.h"

FUZZ_TARGET(jinja) {
    static const char words[] =        /* description of a vocabulary, see vocab_describe */
        "\0\5\0\5hello\0\0\5 user\0\4\5<|x|>\0\5\4User\0\0\2: \0"
        "\10UsseerAsstasisth" "\20\0";
    static bitnet_model m;
    static uint8_t *file;
    fuzz_input in = {(const uint8_t *)words, sizeof words - 1};
    const bitnet__chat_fit *fit;
    bitnet__recognition *r;
    bitnet_error err = {BITNET_OK, "", {0}};
    size_t n_file, room = sizeof *r;
    char *text;
    if (!file)
        FUZZ_CHECK_MSG(!vocab_load(&in, &m, &file, &n_file, 0, &err), "%s", err.text);
    in.p = data;
    in.n = size;
    room += (size_t)fuzz_uint(&in, 1) << 7;
    text = (char *)gb_malloc(in.n);    /* of its size, so that reading past it is seen */
    if (in.n) memcpy(text, in.p, in.n);
    r = (bitnet__recognition *)gb_malloc(room);
    fit = bitnet__recognise(r, room, &m.vocab, text, in.n, &err);
    FUZZ_CHECK(r->j.used <= r->j.cap && r->j.n_out <= BITNET__JINJA_OUT);
    if (fit) {
        FUZZ_CHECK(fit->row && !fit->out);
        FUZZ_CHECK(!bitnet__render_probe(r, &bitnet__probes[0]));
        FUZZ_CHECK(bitnet__agrees(r, fit, &bitnet__probes[0], 0));
    } else FUZZ_CHECK(err.text[0]);
    free(r);
    free(text);
}
