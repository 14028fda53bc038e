/** The page at /: a chat with the model. One document, no parts from elsewhere. */
import { byId } from '../shared/dom.js';
import { themeSwitch } from '../shared/theme.js';
import { chatView } from './chat.js';
import { connectRpc } from './rpc.js';
import { startTabs } from './tabs.js';

const sentences = {
  connecting: 'Connecting…',
  open: '',
  locked: 'A token is needed',
  refused: 'This token was refused',
  gone: 'No connection; trying again',
};
const asks = {
  locked: 'This daemon asks for a token (auth.mode). The page keeps it in memory only.',
  refused: 'This token was refused; “inferd doctor” names the folder with the right one.',
};

const rpc = connectRpc((state) => {
  byId('state').textContent = sentences[state];
  byId('state').dataset.state = state;
  byId('token-box').hidden = asks[state] === undefined;
  byId('token-says').textContent = asks[state] ?? '';
  if (asks[state] !== undefined) byId('token').focus();
  if (state === 'open') void refreshModels();
});

const chat = chatView(rpc);

async function refreshModels() {
  try {
    const { data } = await rpc.call('models.list');
    chat.setModels(data);
  } catch {
    // The connection is lost again: its state says so.
  }
}

byId('token-box').addEventListener('submit', (event) => {
  event.preventDefault();
  rpc.useToken(byId('token').value.trim());
});
document.querySelector('.skip').addEventListener('click', (event) => {
  event.preventDefault(); // the address says what is shown
  byId('main').focus();
});
themeSwitch(byId('theme'));
startTabs({ chat });
rpc.open();
