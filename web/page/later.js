// later.js - Search, which few first visits need: it comes when it is chosen, when a model is open that
// makes vectors, or when a text is dropped.
import { app, mode, showError } from './app.js';
import { BitNetError } from './bitnet.js';

let coming = null,
    part = null; // search.js, when it is there

async function use(name, ...args) {
    try {
        part = await (coming ??= import('./search.js'));
    } catch (e) {
        coming = null;
        showError(new BitNetError('PART', e.message));
        return;
    }
    await part[name](...args);
}

export const search = () => use('search');
export const newSearch = () => use('newSearch');
export const addFiles = files => use('addFiles', files);

// Another model is open, or none, or the mode is another one.
export const modelChanged = () => {
    const needed = part || mode() === 'search' || app.model?.info.hasHead === false;
    if (needed) use('modelChanged');
};

// These return whether anything was done.
export const closeReader = () => part?.closeReader() ?? false;
export const addFolders = carried => part?.addFolders(carried) ?? false;
