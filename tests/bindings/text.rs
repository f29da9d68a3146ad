//! Writes a text in Rust: text MODEL. BINDINGS is what bindgen makes of bitnet.h, with a line
//! `pub use self::bitnet_eval_v1 as bitnet_eval;` for each function behind it.
use std::ffi::{CStr, CString};
use std::os::raw::{c_char, c_int, c_void};
use std::{env, mem, ptr, slice, str};

#[allow(dead_code, non_camel_case_types, non_upper_case_globals, unused_imports)]
mod bitnet {
    include!(env!("BINDINGS"));
}
use bitnet::*;

unsafe extern "C" fn take(
    ud: *mut c_void,
    text: *const c_char,
    n: usize,
    _: bitnet_token,
) -> c_int {
    let written = &mut *(ud as *mut Vec<u8>);
    written.extend_from_slice(slice::from_raw_parts(text as *const u8, n));
    0
}

fn main() {
    let path = CString::new(env::args().nth(1).expect("no model")).unwrap();
    let prompt = "Once upon a time";
    let mut written: Vec<u8> = Vec::new();
    unsafe {
        let mut model: *mut bitnet_model = ptr::null_mut();
        let mut ctx: *mut bitnet_ctx = ptr::null_mut();
        let mut err: bitnet_error = mem::zeroed();
        let mut gen: bitnet_generate_params = mem::zeroed();
        gen.text = bitnet_text { data: prompt.as_ptr() as *const c_char, size: prompt.len() };
        gen.max_tokens = 40;
        gen.text_fn = Some(take);
        gen.text_ud = &mut written as *mut Vec<u8> as *mut c_void;
        let mut r = bitnet_model_load_file(path.as_ptr(), ptr::null(), &mut model, &mut err);
        if r == bitnet_result_BITNET_OK {
            r = bitnet_ctx_create(model, ptr::null(), &mut ctx, &mut err);
        }
        bitnet_model_free(model); // the context keeps it
        if r == bitnet_result_BITNET_OK {
            r = bitnet_generate(ctx, &gen, ptr::null_mut(), &mut err);
        }
        bitnet_ctx_free(ctx);
        assert!(r == bitnet_result_BITNET_OK, "{:?}", CStr::from_ptr(err.text.as_ptr()));
    }
    println!("{}", str::from_utf8(&written).unwrap().trim());
}
