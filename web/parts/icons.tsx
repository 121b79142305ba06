/** Line icons of 20 pixels, drawn in the colour of the text. */
const PATHS = {
  fleet: 'M3 5h14M3 10h14M3 15h9',
  report: 'M4 16V9m4 7V5m4 11v-5m4 5V7',
  events: 'M4 4h12v12H4zM4 8h12M8 8v8',
  endpoints: 'M3 10h10m-4-4 4 4-4 4M16.500 4v12',
  clients: 'M7 13.500a3.500 3.500 0 1 0 0-7 3.500 3.500 0 0 0 0 7Zm3.500-3.500H18m-2 0v3m-3-3v2.500',
  activity: 'M10 6v4l3 2m4-2a7 7 0 1 1-14 0 7 7 0 0 1 14 0Z',
  jobs: 'M4 5h3v3H4zM10 6.500h6M4 12h3v3H4zm6 1.500h6',
  settings: 'M4 6h6m4 0h2M4 14h2m4 0h6M12 6a1.500 1.500 0 1 0 0 .01M8 14a1.500 1.500 0 1 0 0 .01',
  copy: 'M7 7V4h9v9h-3M4 7h9v9H4z',
  check: 'm4 10.500 4 4 8-9',
  cross: 'm5 5 10 10M15 5 5 15',
  dot: 'M10 10h.01',
  out: 'M8 4H4v12h4m-1-6h10m-3-3 3 3-3 3',
  up: 'm6 12 4-4 4 4',
  down: 'm6 8 4 4 4-4',
  search: 'M9 15A6 6 0 1 0 9 3a6 6 0 0 0 0 12Zm4.500-1.500L17 17',
  empty: 'M3 7.500 5 3h10l2 4.500V16H3zM3 8h4l1 2.500h4L13 8h4',
}

type IconName = keyof typeof PATHS

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 20 20" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  )
}

export function Mark() {
  return (
    <svg class="mark" viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="8" />
      <path d="M7 20v-4m6 4V9m6 11v-8m6 8v-2" />
    </svg>
  )
}
