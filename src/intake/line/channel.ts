/** The channel's name: the routes `line`, `Line` and `line-oa` come from it. */
export const LINE = 'line'
