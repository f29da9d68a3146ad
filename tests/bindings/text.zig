// Writes a text in Zig 0.11: text MODEL. @cImport reads bitnet.h itself; the module names has the
// names of all functions.
const std = @import("std");
const c = @cImport(@cInclude("bitnet.h"));

comptime {
    for (@import("names").all) |name| _ = @TypeOf(@field(c, name));
}

fn take(ud: ?*anyopaque, text: [*c]const u8, n: usize, t: c.bitnet_token) callconv(.C) c_int {
    _ = ud;
    _ = t;
    std.io.getStdOut().writeAll(text[0..n]) catch return 1;
    return 0;
}

fn must(r: c.bitnet_result) !void {
    if (r != c.BITNET_OK) return error.Bitnet;
}

pub fn main() !void {
    const prompt = "Once upon a time";
    var model: ?*c.bitnet_model = null;
    var ctx: ?*c.bitnet_ctx = null;
    var err: c.bitnet_error = undefined;
    errdefer std.debug.print("{s}\n", .{@as([*:0]const u8, @ptrCast(&err.text))});
    var params = std.mem.zeroes(c.bitnet_generate_params);
    params.text = .{ .data = prompt, .size = prompt.len };
    params.max_tokens = 40;
    params.text_fn = take;
    try must(c.bitnet_model_load_file(std.os.argv[1], null, &model, &err));
    defer c.bitnet_model_free(model);
    try must(c.bitnet_ctx_create(model, null, &ctx, &err));
    defer _ = c.bitnet_ctx_free(ctx);
    try must(c.bitnet_generate(ctx, &params, null, &err));
    try std.io.getStdOut().writeAll("\n");
}
