/** The page at /: a chat with the model, a board of what the machine does, its requests, its models. One document, no parts from elsewhere. */
import { byId } from '../shared/dom.js';
import { themeSwitch } from '../shared/theme.js';
import { boardView } from './board/board.js';
import { chatView } from './chat/chat.js';
import { modelsView } from './models/models.js';
import { requestsView } from './requests/requests.js';
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
  if (state === 'open') for (const view of Object.values(views)) view.connected();
});

const chat = chatView(rpc);
const board = boardView(rpc);
const models = modelsView(rpc, (list) => {
  chat.setModels(list);
  board.setModels(list);
});
const views = { chat, board, requests: requestsView(rpc), models };

byId('token-box').addEventListener('submit', (event) => {
  event.preventDefault();
  rpc.useToken(byId('token').value.trim());
});
document.querySelector('.skip').addEventListener('click', (event) => {
  event.preventDefault(); // the address says what is shown
  byId('main').focus();
});
themeSwitch(byId('theme'));
startTabs(views);
rpc.open();
