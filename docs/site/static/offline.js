// Browsers do not let a page that was opened as a file read others: the search shows titles alone then.
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
