// browsers.mjs - Chromium or Firefox, without a window, for the tests: puppeteer-core drives both.
import { createRequire } from 'node:module';
import { resolve } from 'node:path';

const CHROMIUM_FLAGS = [
    '--no-sandbox',
    '--disable-gpu',
    '--disable-quic',
    '--no-first-run',
    '--disable-background-networking',
    '--disable-component-update',
    '--disable-sync',
    // a mouse, which a machine without a screen has not
    '--blink-settings=primaryHoverType=2,availableHoverTypes=2,primaryPointerType=4,' +
        'availablePointerTypes=4',
];

// ms; no machine is so slow: whatever takes longer never comes
export const HANG = 300000;

// modules: a folder whose node_modules has tests/web/package.json's. CHROMIUM and FIREFOX name the
// programs. folder: a profile to be kept. Firefox has its looks and limits from its preferences, so
// a browser of their own: dark, reducedMotion; quota, in bytes, for all sites together.
export async function launch(name, modules, { folder, dark, reducedMotion, quota } = {}) {
    const { default: puppeteer } = createRequire(resolve(modules, 'package.json'))(
        'puppeteer-core'
    );
    const firefox = name === 'firefox',
        extraPrefsFirefox = {
            'layout.css.prefers-color-scheme.content-override': dark ? 0 : 1,
            'ui.prefersReducedMotion': reducedMotion ? 1 : 0,
            'ui.primaryPointerCapabilities': 6, // a mouse: fine, and hovers
            'ui.allPointerCapabilities': 6,
            'dom.storageManager.prompt.testing': true, // instead of a question to the user
            'dom.storageManager.prompt.testing.allow': true,
        };
    if (quota) {
        extraPrefsFirefox['dom.quotaManager.temporaryStorage.fixedLimit'] = Math.ceil(quota / 1024);
    }
    return puppeteer.launch({
        browser: firefox ? 'firefox' : 'chrome',
        executablePath: firefox
            ? (process.env.FIREFOX ?? '/usr/bin/firefox-esr')
            : (process.env.CHROMIUM ?? '/usr/bin/chromium'),
        args: firefox ? [] : CHROMIUM_FLAGS,
        extraPrefsFirefox,
        userDataDir: folder,
        defaultViewport: null,
        timeout: HANG,
        protocolTimeout: HANG,
    });
}

// A new page of a browser or of its context, which waits as long.
export async function newPage(from) {
    const page = await from.newPage();
    page.setDefaultTimeout(HANG);
    page.setDefaultNavigationTimeout(HANG);
    return page;
}
