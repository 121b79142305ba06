/**
 * A page that tracks with Segment's browser library. Start the service, and read the tracking key with `oa-audience accounts show`:
 *
 *   npm run tracking --workspace examples
 *   open http://localhost:5173/?key=<tracking key>
 */
import { AnalyticsBrowser } from '@segment/analytics-next'

const parameters = new URLSearchParams(location.search)
const host = parameters.get('host') ?? '127.0.0.1:3000'
// The tracking key is public, so it may be in the page.
const writeKey = parameters.get('key') ?? ''

const analytics = AnalyticsBrowser.load(
  // The settings of the source, which the library would otherwise download from Segment.
  { writeKey, cdnSettings: { integrations: { 'Segment.io': { apiKey: writeKey } } } },
  {
    integrations: {
      'Segment.io': {
        apiHost: `${host}/api/tracking/v1`,
        protocol: host.startsWith('127.0.0.1') ? 'http' : 'https',
        // Sends up to 10 events together, and the last ones when the person leaves the page.
        deliveryStrategy: { strategy: 'batching' },
      },
    },
  },
)

const show = (text) => {
  document.querySelector('[role=status]').textContent = text
}

analytics.page('Menu')

// The user id on LINE connects the events to a member of the audience. In LINE's browser, LIFF knows it: liff.getContext().userId
document.querySelector('#sign-in').addEventListener('submit', async (event) => {
  event.preventDefault()
  const userId = new FormData(event.target).get('userId')
  await analytics.identify(userId)
  show(`Signed in as ${userId}`)
})

for (const button of document.querySelectorAll('.order')) {
  button.addEventListener('click', async () => {
    const { item, value } = button.dataset
    await analytics.track('Coffee Ordered', { item, value: Number(value) })
    show(`${item} ordered`)
  })
}
