-- talk.lua - a text and a chat in LuaJIT (Debian: luajit), by its foreign-function interface
--
--     cc -O2 -shared -fPIC -DBITNET_SHARED packaging/bitnet*.c -o libbitnet.so -lpthread
--     sed '/^#include <std/d' bitnet.h | cc -E -P -x c - >bitnet.cdef
--     luajit examples/languages/talk.lua MODEL.gguf "Once upon a time" "Hello!"
--
-- bitnet.cdef has the declarations of bitnet.h, with which LuaJIT knows its structs and functions.
-- This needs no callbacks: a call of bitnet_gen_next gives the next piece of the text.
local ffi = require 'ffi'
local file, opening, question = ...
if not question then
    io.stderr:write('usage: luajit talk.lua MODEL.gguf TEXT MESSAGE\n')
    os.exit(2)
end

local declarations = assert(io.open('bitnet.cdef'))
ffi.cdef(declarations:read('*a'))
declarations:close()
local library, err = ffi.load('./libbitnet.so'), ffi.new('bitnet_error')

-- bitnet.eval is bitnet_eval, whose symbol has the version of the interface in its name.
local bitnet = setmetatable({}, {
    __index = function(_, name) return library['bitnet_' .. name .. '_v1'] end
})

-- A result that is no success becomes an error of Lua, in the library's words.
local function check(result)
    if result ~= ffi.C.BITNET_OK then error(ffi.string(err.text), 0) end
end

-- What a function creates of one thing, and Lua's collector frees.
local function create(kind, make, free, from, params)
    local out = ffi.new(kind .. ' *[1]')
    check(make(from, params, out, err))
    return ffi.gc(out[0], free)
end

-- Lua must keep the string somewhere else as long as the library needs it.
local function text(s) return ffi.new('bitnet_text', s, #s) end

local function write(ctx, params)
    local gen = create('bitnet_gen', bitnet.gen_begin, bitnet.gen_end, ctx, params)
    local gens, piece = ffi.new('bitnet_gen *[1]', gen), ffi.new('bitnet_piece')
    repeat
        check(bitnet.gen_next(gens, 1, err))
        bitnet.gen_piece(gen, piece)
        io.write(ffi.string(piece.text.data, piece.text.size))
        io.flush()
    until piece.ended == 1
    io.write('\n')
    bitnet.gen_end(ffi.gc(gen, nil))      -- not some time later: the next one needs the sequence
end

local model = create('bitnet_model', bitnet.model_load_file, bitnet.model_free, file, nil)
local ctx = create('bitnet_ctx', bitnet.ctx_create, bitnet.ctx_free, model, nil)

write(ctx, ffi.new('bitnet_generate_params', { text = text(opening), max_tokens = 40 }))

check(bitnet.seq_rewind(ctx, 0, 0, err))  -- the chat does not go on from the text
local message = ffi.new('bitnet_message', { role = text('user'), content = text(question) })
write(ctx, ffi.new('bitnet_generate_params', { messages = message, n_messages = 1 }))
