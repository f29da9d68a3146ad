// browser.mjs - the page in a real browser: what a user does, and what goes wrong for one.
//
//     node tests/web/browser.mjs BROWSER SITE GENERATE MODULES [NAME...]
//
// BROWSER is chromium or firefox, SITE the folder that ./build.sh web made, GENERATE the native
// program whose text is expected, MODULES a folder whose node_modules has tests/web/package.json's;
// MODULES/screenshots gets pictures. NAMEs choose tests. For CHROMIUM and FIREFOX see browsers.mjs.
// The server, which some tests need, is the program serve beside GENERATE.
import { rmSync } from 'node:fs';
import { browser, firefox, forget, isolated, only, plain, scratch, Skip } from './page/driver.mjs';
import { tests as start } from './page/start.mjs';
import { tests as models } from './page/models.mjs';
import { tests as chat } from './page/chat.mjs';
import { tests as kept } from './page/kept.mjs';
import { tests as check } from './page/check.mjs';
import { tests as search } from './page/search.mjs';
import { tests as server } from './page/server.mjs';
import { tests as looks } from './page/looks.mjs';

const tests = { ...start, ...models, ...chat, ...kept, ...check, ...search, ...server, ...looks };

// What is the same in every browser: what the page's own code decides, and not workers, storage, the
// network or the browser's own interface. Firefox runs them when they are named.
const IN_ONE_BROWSER = [
    'a_seed_repeats_itself',
    'http_404',
    'download_bar_and_cancel',
    'crosscheck_finds_a_wrong_model',
    'crosscheck_finds_what_differs',
    'crosscheck_finds_a_wrong_kernel',
    'wrong_checksum',
    'full_context_drops_the_oldest',
    'text_that_cannot_be_sent_comes_back',
    'percent_in_an_address',
    'settings_out_of_range',
    'figures_belong_to_the_model',
    'contrast_of_every_state',
    'same_named_models',
    'a_load_is_announced_and_has_one_bar',
    'models_on_offer',
    'a_download_that_waits',
    'how_much_a_model_thinks',
    'interrupted_download_that_is_not_kept',
    'checksum_of_a_wrong_length',
    'what_can_be_done_with_a_message',
    'thirty_messages',
    'a_reply_grows',
    'a_long_reply_costs_the_same_to_its_end',
    'a_reply_is_spoken_once',
    'first_visit_loads_what_it_needs',
    'search_lists_many_files',
    'composed_text',
    'a_message_of_100_kb',
    'kept_models_are_checked',
    'arrow_up_edits',
    'a_reply_goes_on',
    'served_with_a_key',
    'served_by_others',
];
// What ./build.sh test runs, in Chromium: the ways that everybody takes, and the faults that cost the
// most. The suite web-chromium runs all.
const IN_TEST = [
    'same_text_as_native',
    'same_text_in_every_variant',
    'works_without_isolation',
    'service_worker_isolates',
    'page_is_never_blocked',
    'settings_are_kept',
    'storage_is_blocked',
    'offline_after_the_first_visit',
    'an_update_is_whole_or_not_at_all',
    'a_start_that_fails_says_why',
    'wrong_file',
    'reload_uses_the_cache',
    'interrupted_download_resumes',
    'drag_and_drop',
    'out_of_memory',
    'threads_start_before_a_file_is_locked',
    'wrong_checksum',
    'models_on_offer',
    'kept_models_are_checked',
    'no_room_in_the_store',
    'chat_keeps_its_context',
    'stop_ends_a_text',
    'full_context_drops_the_oldest',
    'what_can_be_done_with_a_message',
    'markdown',
    'hostile_replies',
    'a_long_reply_costs_the_same_to_its_end',
    'chats_are_kept',
    'reload_in_mid_answer',
    'two_tabs',
    'a_reply_is_spoken_once',
    'crosscheck_passes',
    'crosscheck_finds_a_wrong_kernel',
    'a_closed_tab_goes_on_from_its_state',
    'a_file_is_open_again',
    'search_finds_marks_and_removes',
    'search_index_is_kept',
    'served_chat',
    'served_reply_ends_early',
    'served_with_a_key',
    'keyboard',
    'accessible',
    'phone_has_no_sideways_scroll',
];
function runs(title) {
    if (only.length) return only.includes(title);
    if (firefox && IN_ONE_BROWSER.includes(title)) return false;
    return process.env.BITNET__WHOLE !== '0' || IN_TEST.includes(title);
}
const unknown = [...IN_ONE_BROWSER, ...IN_TEST, ...only].filter(title => !tests[title]);
if (unknown.length) throw new Error(`there is no test ${unknown}`);

const counts = { passed: 0, failed: 0, skipped: 0 };
for (const [title, test] of Object.entries(tests)) {
    if (!runs(title)) continue;
    forget();
    const start = Date.now();
    try {
        await test();
        counts.passed++;
        console.log(`ok ${title} (${Date.now() - start} ms)`);
    } catch (e) {
        const text = String(e.message).split('\n').slice(0, 6).join('\n    ');
        counts[e instanceof Skip ? 'skipped' : 'failed']++;
        console.log(`${e instanceof Skip ? 'skip' : 'FAIL'} ${title}: ${text}`);
    }
}
await browser.close();
for (const { server } of [isolated, plain]) {
    server.closeAllConnections();
    server.close();
}
rmSync(scratch, { recursive: true });
console.log(`${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped`);
process.exitCode = counts.failed ? 1 : 0;
